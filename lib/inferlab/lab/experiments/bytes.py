"""Bytes of one decode step: watched as the operations take them, and bounded by the clock.

N is the number of parameters held in memory, b the bytes of one, so N·b are the bytes of the
weights. A step that moved k·N·b bytes at the machine's read bandwidth BW would last k·N·b / BW at
least; so a step of t seconds has moved at most t·BW / (N·b) times its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from inferlab.engine import kernels
from inferlab.engine.generate import decode, prefill
from inferlab.engine.model import Model
from inferlab.lab import clock as clocks
from inferlab.lab.ceilings import Calibration, read_ceiling
from inferlab.lab.experiments.reading import ids
from inferlab.lab.hollow import hollow, hollow_pass
from inferlab.lab.intervals import Interval
from inferlab.lab.meters import repeat
from inferlab.lab.pairs import Paired, paired
from inferlab.lab.probes import Probe
from inferlab.lab.records import Measurement, provenance
from inferlab.lab.traffic import Traffic, traffic
from inferlab.lab.verdicts import Case
from inferlab.theory import counts
from inferlab.theory.shapes import ModelShape
from inferlab.theory.units import bytes_per_weight

CONTEXT = 64
"""Tokens in the cache while a step is watched or timed, where nothing else is said."""

_SECONDS = 2.0  # of rounds, for a ratio that repeats within some percent


def step(model: Model, context: int = CONTEXT) -> tuple[Callable[[], object], object]:
    """A decode step that leaves the cache as it found it, and its cache."""
    cache, tokens = model.cache(1, context + 1), ids(context + 1, model.shape.vocab)
    prefill(model, cache, tokens[:-1])

    def write() -> None:
        cache.lengths = [context]
        decode(model, cache, tokens[-1:])

    return write, cache


def weights(model: Model) -> float:
    """N·b: bytes of the parameters of `model` in its own type."""
    return model.shape.params * bytes_per_weight(model.dtype_name)


def watched(model: Model, context: int = CONTEXT) -> Traffic:
    """Bytes that one executed decode step takes from weights and cache, operation by operation."""
    write, cache = step(model, context)
    return traffic(write, model, cache)


def formula(model: Model, context: int = CONTEXT) -> counts.StepCount:
    """The same step by formula."""
    dtype = model.dtype_name
    one = [counts.Sequence(1, context)]
    return counts.step(model.shape, one, weight_dtype=dtype, kv_dtype=dtype)


@dataclass(frozen=True)
class Clocked:
    """A decode step timed beside a read of memory. `weights`: N·b; `fixed`: seconds of the same
    step through a model with next to no weights, None where that was not asked for.
    """

    name: str
    dtype: str
    weights: float
    pair: Paired
    fixed: Measurement | None = None

    @property
    def threads(self) -> int:
        """Threads that both were timed with."""
        return self.pair.step.provenance["threads"]

    @property
    def bandwidth(self) -> float:
        """Read bandwidth beside the step, B/s."""
        return self.pair.ceiling_work / self.pair.ceiling.value

    @property
    def at_most(self) -> Interval:
        """t·BW / (N·b), round by round: the most times the weights can have been read."""
        return self.pair.ratio().scaled(self.pair.ceiling_work / self.weights)

    @property
    def seconds(self) -> Interval:
        """The step, as it would last at the median bandwidth of its rounds: `at_most` · N·b/BW."""
        return self.at_most.scaled(self.weights / self.bandwidth)

    def predicted(self, times: float = 1.0) -> float:
        """times · N·b / BW, in seconds."""
        return times * self.weights / self.bandwidth


def clocked(
    model: Model,
    ceiling: Probe,
    context: int = CONTEXT,
    rounds: int | None = None,
    fixed: bool = False,
) -> Clocked:
    """Time a decode step of `model` beside the read probe `ceiling`, in turn.

    rounds  None: about two seconds of them. fixed: time the step of a hollow model as well, on as
    many threads.
    """
    write, _ = step(model, context)
    where = str(model.device)
    pair = paired(
        ceiling, write, rounds or _rounds(write, ceiling, where), 2, step_work=weights(model),
        device=where, conditions={"model": model.shape.name, "dtype": model.dtype_name,
                                  "context": context, "kernels": model.table},
    )  # fmt: skip
    waited = _fixed(model, context, pair) if fixed else None
    return Clocked(model.shape.name, model.dtype_name, weights(model), pair, waited)


def read_probe_of(machine: Calibration) -> Probe:
    """The read probe that was the fastest when `machine` was calibrated."""
    how = machine.records[0].conditions
    return read_ceiling(how["device"], how["kind"], how["nbytes"])


def per_step(models: Iterable[Model], timed: Clocked) -> list[Case]:
    """Cases of the claim `bytes-per-step`: watched in each model, in its type, and by the clock
    (`by_clock`).
    """
    counted = [
        Case(m.dtype_name, watched(m).weights / weights(m), detail=m.shape.name) for m in models
    ]
    return [*counted, *by_clock(timed.at_most, f"{timed.name}, {timed.dtype}")]


def by_clock(at_most: Interval, detail: str = "") -> list[Case]:
    """The case of the clock; none where its bound is not below 2: where 2N·b would have fitted into
    the time as well, the clock is no witness, neither against the one statement nor for it.
    """
    return [Case("clock", at_most, detail=detail)] if at_most.high < 2 else []


def product_rate(
    model: Model, threads: int | None = None, nbytes: int = 2**20, seconds: float = 0.2
) -> Measurement:
    """Bytes of weights per second that the product of a decode step takes in, from nearby memory.

    One row times a square matrix of about `nbytes`, so small that the processor's cache keeps it,
    with the kernel and in the type of `model`: where that is slower than the read bandwidth, a step
    waits for arithmetic and not for memory.
    """
    kind, width = model.table["linear"]["gemv"], round((nbytes / model.dtype.itemsize) ** 0.5)
    x, w = (torch.randn(n, width, device=model.device).to(model.dtype) for n in (1, width))
    linear = kernels.Linear(w, None, {kind})

    @torch.inference_mode()
    def run() -> None:
        with kernels.switches(kind):
            linear(x, kind)

    with clocks.threads(threads if model.device.type == "cpu" else None):
        found = repeat(run, 15, seconds, warmup=20, inner=50, device=str(model.device))
    how = {"kernel": kind, "dtype": model.dtype_name, "width": width}
    taken = [w.nbytes / t for t in found.samples]
    return Measurement.from_samples("rate of a product", taken, "B/s", how, found.provenance)


def context_as_heavy_as_weights(
    shape: ModelShape, weight_dtype: str = "bf16", kv_dtype: str = "bf16", batch: int = 1
) -> float:
    """Tokens in the cache of each sequence at which a step reads as many bytes of KV as of weights.

    N_streamed·b_w / (batch · κ), κ the KV bytes of a token; of a MoE model the weights that a step
    of this batch is expected to read.
    """
    one = counts.step(shape, [counts.Sequence(1)] * batch, weight_dtype=weight_dtype)
    return one.weight_bytes / (batch * shape.kv_bytes_per_token(kv_dtype))


def _rounds(write: Callable[[], object], ceiling: Probe, device: str) -> int:
    write()
    sync, clock = clocks.synchronizer(device), clocks.core_clock(device)
    longer = max(clocks.seconds(fn, sync, clock) for fn in (write, ceiling))
    return min(75, max(12, round(_SECONDS / (2 * longer))))


def _fixed(model: Model, context: int, pair: Paired, samples: int = 9) -> Measurement:
    empty, where = hollow(model), str(model.device)
    with clocks.threads(pair.step.provenance["threads"] if where == "cpu" else None):
        hollow_pass(empty, context, where)
        took = [hollow_pass(empty, context, where) for _ in range(samples)]
        how = {"layers": model.shape.n_layers, "device": where, "model": model.shape.name}
        return Measurement.from_samples(
            "pass without weights", took, "s", how, provenance(where)
        )  # fmt: skip
