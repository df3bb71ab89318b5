"""The additive predictor calibrated on this machine with one shape, and tried on others.

Each step is timed beside its ceilings, a read of memory and a matrix product, since both drift: a
row of the fit carries the ceilings of its own minute. Beside the one shape stand two kinds of
probe, which are no models: the same layers with next to no width, for what a layer costs before it
reads a weight; and layers that are almost all attention, with few and with many query heads to a
head of keys and values, since one shape alone cannot tell the bytes of its cache from the FLOPs
over it. Weights are random: time does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch

from inferlab.engine import kernels
from inferlab.engine.generate import decode, prefill
from inferlab.engine.load import random_model
from inferlab.engine.model import Model
from inferlab.lab import clock as clocks
from inferlab.lab.fitting import Row, fit, predicted
from inferlab.lab.hollow import narrow
from inferlab.lab.meters import interleave
from inferlab.lab.probes import Probe, gemm_probe, torch_dtype
from inferlab.lab.rates import read_ceiling
from inferlab.theory import counts, roofline, shapes
from inferlab.theory.additive import Fitted, Prediction
from inferlab.theory.roofline import Machine
from inferlab.theory.shapes import ModelShape

KEYS_AT_A_TIME = 512
"""Keys that torch's CPU attention computes at a time: the second of the block sizes that
`flash_attention_kernel_impl` chooses in aten/src/ATen/native/cpu/FlashAttentionKernel.cpp."""

FREE = {
    ("decode", "gemv"): ("beta", "beta_kv", "phi_attention", "layer", "beta_act"),
    ("decode", "small"): ("beta", "phi", "beta_kv", "phi_attention", "layer"),
    ("decode", "gemm"): ("phi", "beta_kv", "phi_attention", "layer"),
    "prefill": ("phi", "phi_attention", "layer"),
}
"""What is fitted, per phase and kernel path. The rest is ideal: weights are read at the ceiling
where many rows share them, activations stay in the caches."""

_CUBE = 1024  # the product whose rate is the ceiling of computing
_ROUNDS = 3  # at least, of a step; the median counts
_SAMPLE = 0.02  # seconds of a sample at least: short steps are called some times in a row
_LONG = 0.2  # seconds from which one call warms a step up


@dataclass(frozen=True)
class Step:
    """One step to time: decode of `batch` sequences after `length` tokens, or prefill of them."""

    phase: str
    batch: int
    length: int

    def __str__(self) -> str:
        if self.phase == "prefill":
            return f"prefill of {self.length:,}" + (f" × {self.batch}" if self.batch > 1 else "")
        return f"decode after {self.length:,}, batch {self.batch}"


def steps(writes: Iterable[tuple[int, int]], reads: Iterable[int]) -> tuple[Step, ...]:
    """Decode at these (batch, context), and prefill of one prompt of each of these lengths."""
    return (*(Step("decode", b, n) for b, n in writes), *(Step("prefill", 1, n) for n in reads))


WHOLE = steps(
    ((1, 32), (1, 512), (1, 2048), (2, 64), (4, 64), (4, 1024), (8, 64), (8, 512), (16, 64),
     (16, 512), (16, 1024)), (32, 128, 512, 1024),
)  # fmt: skip
QUICK = steps(
    ((1, 32), (1, 1024), (2, 64), (4, 64), (8, 64), (8, 512), (16, 64), (16, 512)), (32, 128, 512)
)
HOLLOW = steps(((1, 32), (4, 32), (16, 32)), (32,))
ATTENTION = steps(((1, 512), (1, 2048), (4, 1024), (8, 512), (16, 512)), (128, 512, 1024))


@dataclass(frozen=True)
class Ceilings:
    """Ceilings of one minute: read bandwidth in byte/s and the rate of a product in FLOP/s."""

    bandwidth: float
    rate: float

    def peak_flops(self, dtype: str) -> float:
        """The rate that was measured, whatever the type: the probe's is the model's."""
        return self.rate


@dataclass(frozen=True)
class Tried:
    """A step that the fit has not seen: the row, what was predicted of it, and by how much off."""

    row: Row
    prediction: Prediction

    @property
    def error(self) -> float:
        """(predicted − measured) / measured."""
        return float(self.prediction) / self.row.seconds - 1


Timer = Callable[[Model, Step], Row]


def base(n_layers: int = 26, **fields: object) -> ModelShape:
    """The shape it is calibrated on, 0.33 G parameters: Llama-3 layers of width 1,024."""
    how = {
        "name": "calibration-0.33b", "n_layers": n_layers, "d_model": 1024, "n_heads": 16,
        "n_kv_heads": 4, "head_dim": 64, "d_ff": 2816, "vocab": 32000, "rope_scaling": None,
        "max_context": 8192,
    }  # fmt: skip
    return replace(shapes.get("llama-3.2-1b"), **(how | fields))


def unseen() -> tuple[ModelShape, ...]:
    """Thirteen shapes that differ from `base` in one thing or in all, 0.31 to 1.24 G parameters."""
    return (
        base(48, name="deep and thin", d_model=768, n_heads=12, d_ff=2048),
        base(8, name="wide and shallow", d_model=2048, n_heads=32, n_kv_heads=8, d_ff=5632),
        base(16, name="wide heads", d_model=1536, n_heads=12, n_kv_heads=2, head_dim=128,
             d_ff=4096),
        base(name="narrow heads", n_heads=32, n_kv_heads=8, head_dim=32),
        base(name="no groups (MHA)", n_kv_heads=16),
        base(name="groups of 8", n_kv_heads=2),
        base(name="one group (MQA)", n_kv_heads=1),
        base(16, name="vocabulary of 128 k", vocab=128256),
        base(28, name="vocabulary of 8 k", vocab=8000),
        base(10, name="wide MLP", d_ff=8192),
        base(28, name="as Qwen3-0.6B", n_kv_heads=8, head_dim=128, d_ff=3072, vocab=151936,
             qk_norm=True),
        shapes.get("qwen2.5-0.5b"),
        shapes.get("llama-3.2-1b"),
    )  # fmt: skip


def within(
    points: Sequence[Step], shape: ModelShape, machine: Machine, dtype: str, seconds: float = 1.2
) -> tuple[Step, ...]:
    """The steps that take at most `seconds` at the ceilings, in their order; all where none does.

    A slow machine would spend a page's time on its longest prompts.
    """
    kinds = {"weight_dtype": dtype, "kv_dtype": dtype}

    def light(step: Step) -> float:
        new, past = (step.length, 0) if step.phase == "prefill" else (1, step.length)
        work = counts.step(shape, [counts.Sequence(new, past)] * step.batch, **kinds)
        return roofline.step_time(work, machine, dtype)

    return tuple(point for point in points if light(point) <= seconds) or tuple(points)


def timer(device: str = "cpu", dtype: str = "bf16", seconds: float = 0.5) -> Timer:
    """What times a step beside its ceilings: rounds of read, product and step; medians of each.

    seconds  of rounds per step, at least three rounds. On a CPU call it on `clock.spare_threads()`
             threads, as `calibrated` does: see `clock`.
    """
    packed = kernels.packs(torch.device(device), torch_dtype(dtype))
    kernel = "packed" if packed else "plain"
    read = read_ceiling(device)
    product = gemm_probe(dtype, _CUBE, _CUBE, _CUBE, device, kernel)
    return lambda model, step: _timed(model, step, read, product, seconds)


def calibrated(
    time: Timer | None = None,
    shape: ModelShape | None = None,
    points: Sequence[Step] = WHOLE,
    device: str = "cpu",
    dtype: str = "bf16",
    threads: int | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> tuple[Fitted, list[Row]]:
    """The predictor with this machine's constants, and the rows that they were fitted to.

    time     default `timer(device, dtype)`; shape: default `base()`; threads: default
             `clock.spare_threads()`, as for every ratio that is to hold beside a neighbour
    The constants of short prompts (fewer than 16 tokens) are those of decode on the same path.
    """
    shape, rows = shape or base(), []
    probes = [(shape, points), (narrow(shape), HOLLOW)]
    probes += [(s, ATTENTION) for s in _attention(shape)]
    total = sum(len(each) for _, each in probes)
    with clocks.threads((threads or clocks.spare_threads()) if device == "cpu" else None):
        time = time or timer(device, dtype)
        for at, each in probes:
            model = random_model(at, device, dtype)
            for step in each:
                progress(len(rows), total, f"{at.name}, {step}")
                rows.append(time(model, step))
    machine = Ceilings(
        *(median(getattr(r.machine, k) for r in rows) for k in ("bandwidth", "rate"))
    )
    block = KEYS_AT_A_TIME if device == "cpu" else 1
    name = f"this machine, {dtype}"
    made = fit(rows, machine, FREE, name=name, causal_block=block, designed=True)
    same = {("prefill", path): made.constants["decode", path] for path in ("gemv", "small")}
    return replace(made, constants={**same, **made.constants}), rows


def tried(
    fitted: Fitted,
    model: Model,
    points: Sequence[Step] = QUICK,
    time: Timer | None = None,
    threads: int | None = None,
) -> list[Tried]:
    """The same steps of another model, timed, and predicted without having been seen."""
    device = str(model.device)
    with clocks.threads((threads or clocks.spare_threads()) if device == "cpu" else None):
        time = time or timer(device, model.dtype_name)
        rows = [time(model, step) for step in points]
    return [Tried(row, predicted(fitted, row)) for row in rows]


def summary(results: Iterable[Tried]) -> dict[str, dict[str, float]]:
    """phase -> n, median and 90th percentile of |error|, and the median error with its sign."""
    found: dict[str, list[float]] = {}
    for result in results:
        found.setdefault(result.row.phase, []).append(result.error)
    return {
        phase: {
            "n": len(errors), "median": float(np.median(np.abs(errors))),
            "p90": float(np.quantile(np.abs(errors), 0.9)), "bias": float(np.median(errors)),
        }
        for phase, errors in found.items()
    }  # fmt: skip


def _attention(shape: ModelShape) -> list[ModelShape]:
    """Layers of almost nothing but attention, with 2, 4 and H query heads to one of keys."""
    few = {"n_layers": 4, "d_model": 64, "d_ff": 64, "vocab": 64}
    heads = shape.n_heads
    kinds = [k for k in (heads // 2, heads // 4, 1) if k and heads % k == 0]
    return [
        replace(shape, name=f"attention, {heads // k} to 1", n_kv_heads=k, **few) for k in kinds
    ]


def _timed(model: Model, step: Step, read: Probe, product: Probe, seconds: float) -> Row:
    device, dtype = str(model.device), model.dtype_name
    run, clock = _pass(model, step), clocks.core_clock(device)
    sync = clocks.synchronizer(device)
    took = clocks.seconds(run, sync, clock)  # warms up
    if took < _LONG:  # of a short one the first call tells little
        took = clocks.seconds(run, sync, clock)
    calls = max(1, round(_SAMPLE / took))

    def some() -> None:
        for _ in range(calls):
            run()

    found = interleave(
        {"read": read, "product": product, "step": some}, _ROUNDS, seconds, 0, device=device,
        clock=clock,
    )  # fmt: skip
    mid = {name: median(times) for name, times in found.items()}
    now = Ceilings(read.work / mid["read"], product.work / mid["product"])
    length = {"context": step.length, "prompt": step.length if step.phase == "prefill" else None}
    return Row(
        model.shape, step.phase, mid["step"] / calls, step.batch, **length, weight_dtype=dtype,
        kv_dtype=dtype, group=f"{model.shape.name}, {step}", label=str(step), machine=now,
    )  # fmt: skip


def _pass(model: Model, step: Step) -> Callable[[], object]:
    """The step as a function; it leaves the cache as it found it, full of noise."""
    cache = model.cache(step.batch, step.length + 1)
    cache.kv.normal_()
    ids = [[(7919 * i + 31 * b) % model.shape.vocab for i in range(step.length)]
           for b in range(step.batch)]  # fmt: skip
    if step.phase == "prefill":

        def read() -> None:
            cache.clear()
            prefill(model, cache, ids)

        return read
    last = [row[-1] for row in ids]

    def write() -> None:
        cache.lengths = [step.length] * step.batch
        decode(model, cache, last)

    return write
