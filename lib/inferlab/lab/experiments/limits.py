"""Which limit binds an operation: as its arithmetic intensity says, and as the clock says.

Intensity names a limit without a clock: below the ridge point memory, above it arithmetic. The
clock must find out by something else than the same quotient, so the work of every operation is
changed on one side only: twice the rows through the same weights, twice the queries over the same
cache. That doubles the FLOPs and leaves nearly all bytes. What waits for memory then takes little
longer, what waits for arithmetic takes twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import sqrt

import torch
import torch.nn.functional as F

from inferlab.engine.model import Model
from inferlab.lab import clock as clocks
from inferlab.lab.experiments import standins
from inferlab.lab.intervals import Interval, ratio
from inferlab.lab.meters import interleave
from inferlab.lab.probes import gemm_probe
from inferlab.lab.records import provenance
from inferlab.theory import counts

TURN = sqrt(2)
"""Time of twice the FLOPs ÷ time of once, above which arithmetic is what is waited for: half way,
on a scale of ratios, between 1 (the bytes alone count) and 2 (the FLOPs alone)."""

_PRODUCTS = {"q, k, v": ("attn_qkv", "q k v"), "o": ("attn_output", "o"),
             "gate, up": ("ffn_gate_up", "gate up"), "down": ("ffn_down", "down")}  # fmt: skip
_ROUNDS, _LEAST = 9, 0.1  # rounds of an operation at least, and seconds of them
_LOOKS = 3  # at an operation that the first rounds leave undecided
_SAMPLE, _FEWEST = 0.08, 4  # seconds of a product that suffice, and layers at least


@dataclass(frozen=True)
class Operation:
    """One operation of a step in all layers together, timed on both sides of a doubling.

    flops, bytes  of the step (`theory.counts`); seconds: median of a pass through all layers
    doubled       time of twice the FLOPs on the same weights or cache ÷ time of once, paired
    """

    name: str
    phase: str
    flops: float
    bytes: float
    seconds: float
    doubled: Interval

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """FLOP/s reached."""
        return self.flops / self.seconds

    def named(self, ridge: float) -> str:
        """The limit that intensity names: 'memory' below the ridge point, else 'arithmetic'."""
        return "memory" if self.intensity < ridge else "arithmetic"

    @property
    def timed(self) -> str:
        """The limit that the clock finds; 'undecided' where its interval holds `TURN`."""
        if self.doubled.low < TURN < self.doubled.high:
            return "undecided"
        return "memory" if self.doubled.value < TURN else "arithmetic"


@dataclass(frozen=True)
class Here:
    """Ceilings beside which the operations were timed: byte/s, FLOP/s; where that was."""

    bandwidth: float
    rate: float
    provenance: Mapping[str, object] = field(default_factory=dict)

    @property
    def ridge(self) -> float:
        """FLOP per byte at which both limits meet."""
        return self.rate / self.bandwidth


def ceilings(model: Model) -> Here:
    """Read bandwidth and rate of a product in the model's dtype, a few rounds of each."""
    device = str(model.device)
    kernel = model.table["linear"]["gemm"]
    product = gemm_probe(model.dtype_name, 1024, 1024, 1024, device, kernel)
    probes = {"read": standins.memory_read(device), "product": product}
    with _threads(device):
        found = interleave(probes, _ROUNDS, device=device, clock=clocks.core_clock(device))
        where = provenance(device)
    best = {name: probes[name].work / min(times) for name, times in found.items()}
    return Here(best["read"], best["product"], where)


def operations(
    model: Model,
    prompt: int = 128,
    context: int = 1024,
    phases: Iterable[str] = ("prefill", "decode"),
) -> list[Operation]:
    """Every product and the attention of a prefill of `prompt` tokens and of a decode step, timed.

    Norms, rotary embedding, activation and residual sums are left out: their FLOPs and bytes grow
    together, so no doubling tells one limit from the other; they are 1 % of either (`counts`).
    """
    device = str(model.device)
    made = []
    with torch.inference_mode(), _threads(device):
        for phase in phases:
            rows = prompt if phase == "prefill" else 1
            work = counts.step(
                model.shape, [counts.Sequence(rows, 0 if phase == "prefill" else context)],
                weight_dtype=model.dtype_name, kv_dtype=model.dtype_name, causal_half=False,
            )  # fmt: skip
            for name, (held, parts) in _PRODUCTS.items():
                run, share = _product(model, held, rows)
                ops = [work.op(p) for p in parts.split()]
                made.append(_timed(name, phase, ops, run, model, share))
            head = [_head(model, n) for n in (1, 2)]
            made.append(_timed("head", phase, [work.op("head")], head, model))
            keys = rows if phase == "prefill" else context + 1
            looks = [_attention(model, rows, keys, times) for times in (1, 2)]
            parts = [work.op(name) for name in ("scores", "softmax", "values")]
            made.append(_timed("attention", phase, parts, looks, model))
    return made


def share_named(found: Iterable[Operation], here: Here, phase: str, plant: str = "") -> float:
    """Share of the operations of a phase whose timed limit is the one that intensity names.

    plant  "swapped" names the other limit; "no-ridge" puts the ridge point at 1 FLOP per byte
    """
    ridge = 1.0 if plant == "no-ridge" else here.ridge
    mine = [op for op in found if op.phase == phase]
    right = [op.timed == op.named(ridge) for op in mine]
    if plant == "swapped":
        right = [op.timed not in (op.named(ridge), "undecided") for op in mine]
    return sum(right) / len(right)


def named_limits(model: Model | None = None, plant: str = "") -> dict[str, float]:
    """`share_named` of both phases: the trial of the claim."""
    model = model or standins.wide()
    here, found = ceilings(model), operations(model, prompt=64)
    return {phase: share_named(found, here, phase, plant) for phase in ("prefill", "decode")}


def _threads(device: str):
    """One core is left free on a CPU, as for every ratio (`clock.spare_threads`)."""
    return clocks.threads(clocks.spare_threads() if device == "cpu" else None)


def _product(model: Model, held: str, rows: int) -> tuple[list[Callable[[], object]], float]:
    """([once, twice], share of the layers): one product of every layer, or of the first ones where
    all would take longer than _SAMPLE; on the kernel that takes many rows, both sides the same.
    """
    linears = [getattr(layer, held) for layer in model.weights.layers]
    kind, width = model.table["linear"]["gemm"], linears[0].weight.shape[1]
    one, two = (
        torch.randn(n, width, dtype=model.dtype, device=model.device) for n in (rows, 2 * rows)
    )
    device = str(model.device)
    sync, clock = clocks.synchronizer(device), clocks.core_clock(device)
    linears[0](one, kind)
    each = clocks.seconds(lambda: linears[-1](one, kind), sync, clock)
    some = linears[: max(_FEWEST, int(_SAMPLE / max(each, 1e-9)))]
    runs = [lambda x=x: [linear(x, kind) for linear in some] for x in (one, two)]
    return runs, len(some) / len(linears)


def _head(model: Model, rows: int) -> Callable[[], object]:
    head, kind = model.weights.linears["output"], model.table["linear"]["gemm"]
    x = torch.randn(rows, model.shape.d_model, dtype=model.dtype, device=model.device)
    return lambda: head(x, kind)


def _attention(model: Model, new: int, keys: int, times: int) -> Callable[[], object]:
    """Attention of every layer; `times` the query rows of a KV head over the same keys."""
    s, like = model.shape, {"dtype": model.dtype, "device": model.device}
    rows = new * times if new > 1 else s.group * times  # one token: its heads are the rows
    heads = s.n_heads if new > 1 else s.n_kv_heads
    q = torch.randn(1, heads, rows, s.head_dim, **like)
    kv = torch.randn(s.n_layers, 2, 1, heads, keys, s.head_dim, **like)
    return lambda: [F.scaled_dot_product_attention(q, k, v) for k, v in kv]


def _timed(
    name: str, phase: str, parts: list, runs: list[Callable], model: Model, share: float = 1.0
) -> Operation:
    """A large read before each sample takes out of the caches what the one before left there.

    Where the interval holds `TURN`, as many rounds are added, twice at most.
    share  of the layers that the runs go through
    """
    device, (once, twice) = str(model.device), runs
    read = standins.memory_read(device)
    flops, moved = sum(p.flops for p in parts), sum(p.bytes for p in parts)
    all_once: tuple[float, ...] = ()
    all_twice: tuple[float, ...] = ()
    for _ in range(_LOOKS):
        found = interleave(
            {"a read": read, "once": once, "another": read, "twice": twice}, _ROUNDS, _LEAST, 1,
            device=device, clock=clocks.core_clock(device),
        )  # fmt: skip
        all_once, all_twice = all_once + found["once"], all_twice + found["twice"]
        middle = sorted(all_once)[len(all_once) // 2] / share
        made = Operation(name, phase, flops, moved, middle, ratio(all_twice, all_once))
        if made.timed != "undecided":
            break
    return made
