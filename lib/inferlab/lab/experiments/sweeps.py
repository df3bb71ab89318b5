"""Measuring the standard set: ceilings, then prefill and decode passes over their sweeps.

Each pass is timed beside its own ceiling (`meters.paired`): prefill beside a matrix product in the
model's dtype, decode beside a read of memory. Real weights where a model has them here, random ones
for larger shapes, since a pass takes the same time whatever the weights are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from inferlab.engine.device import pick_device, pick_dtype, short_name
from inferlab.engine.generate import decode, prefill
from inferlab.engine.load import DEFAULT, load, random_model
from inferlab.engine.model import Model
from inferlab.lab import clock as clocks
from inferlab.lab import standard
from inferlab.lab.ceilings import Calibration, calibrate, read_ceiling
from inferlab.lab.clock import Clock
from inferlab.lab.intervals import MIN_SAMPLES
from inferlab.lab.meters import Paired, dram, energy, paired
from inferlab.lab.probes import Probe, gemm_probe
from inferlab.lab.records import Measurement
from inferlab.theory import counts, shapes

Progress = Callable[[int, int, str], None]

LIMIT = 225.0
"""Seconds after which no further point is begun, so that a set takes at most four minutes."""

_SAMPLED = 1.5  # seconds of passes per point, as far as the number of rounds allows
_ROUNDS = (MIN_SAMPLES, 15)


@dataclass(frozen=True)
class Point:
    """One step to measure: `new` tokens per sequence after `context` tokens in the cache."""

    model: str
    dtype: str  # "first": what suits the device; "second": the other one
    phase: str
    batch: int
    context: int
    new: int = 1

    def __str__(self) -> str:
        what = f"prefill of {self.new}" if self.phase == "prefill" else f"decode at {self.context}"
        many = f" × {self.batch}" if self.batch > 1 else ""
        return f"{self.model}, {self.dtype}, {what} tokens{many}"


def _reads(model: str, lengths: Iterable[int], dtype: str = "first") -> list[Point]:
    return [Point(model, dtype, "prefill", 1, 0, n) for n in lengths]


def _writes(model: str, places: Iterable[tuple[int, int]], dtype: str = "first") -> list[Point]:
    return [Point(model, dtype, "decode", batch, context) for batch, context in places]


def plan(scale: str, model: str = DEFAULT) -> list[Point]:
    """The points of a scale, the most telling first: `model` swept, then larger shapes beside it.

    ci: one model, a few points; laptop: three shapes, up to 1 B; gpu: up to 8 B.
    Raises ValueError for another scale.
    """
    if scale == "ci":
        return [*_reads(model, (16, 128)), *_writes(model, ((1, 64), (1, 512), (4, 64)))]
    small = [
        *_writes(model, ((1, 64), (1, 512), (1, 1024), (2, 64), (4, 64), (8, 64), (16, 64))),
        *_reads(model, (16, 64, 256, 1024)),
        *_writes(model, ((1, 64),), "second"), *_reads(model, (256,), "second"),
    ]  # fmt: skip
    if scale == "laptop":
        return [
            *small,
            *_writes("qwen2.5-0.5b", ((1, 64), (1, 1024), (8, 64))),
            *_reads("qwen2.5-0.5b", (16, 64, 256)),
            *_writes("llama-3.2-1b", ((1, 64), (8, 64))), *_reads("llama-3.2-1b", (16, 128)),
            *_writes("qwen2.5-0.5b", ((1, 64),), "second"),
        ]  # fmt: skip
    if scale == "gpu":
        wide = ((1, 64), (1, 1024), (8, 64), (32, 64), (128, 64))
        return [
            *small,
            *(p for name in ("llama-3.2-1b", "qwen3-4b", "llama-3.1-8b")
              for p in (*_writes(name, wide), *_reads(name, (64, 512, 2048)))),
            *_writes("llama-3.2-1b", ((1, 64),), "second"),
        ]  # fmt: skip
    raise ValueError(f"scale {scale!r}: there are auto, ci, laptop and gpu")


def measure(
    model: str = DEFAULT,
    device: str = "auto",
    scale: str = "auto",
    progress: Progress = lambda done, total, what: None,
    limit: float = LIMIT,
    clock: Clock = time.perf_counter,
) -> standard.Standard:
    """The standard set of this machine, in memory: `save` writes it.

    model  of which the weights are real if they can be had by that name (`engine.load`), and random
           if it is a published shape. scale: auto is gpu on a GPU, else laptop.
    A shape that does not fit, or that `limit` seconds leave no time for, stands in `left_out`.
    Where a neighbour comes, the rest is measured on fewer threads than the ceilings, and says so.
    """
    begun, where = clock(), pick_device(device)
    scale = ("laptop" if where.type == "cpu" else "gpu") if scale == "auto" else scale
    points, dtypes = plan(scale, model), _dtypes(where)
    progress(0, len(points), "ceilings")
    ceilings = calibrate(str(where), dtypes=tuple(dtypes.values()))
    found: dict[str, list[Paired]] = {"prefill": [], "decode": []}
    meters: dict[str, tuple[Measurement, ...] | str] = {}
    left_out: dict[str, str] = {}
    held, key = None, None
    most = ceilings.threads  # less one after a point that a neighbour disturbed
    with clocks.threads(most if where.type == "cpu" else None):
        for index, point in enumerate(points):
            progress(index, len(points), str(point))
            if clock() - begun > limit:
                left_out[str(point)] = f"the {limit:.0f} seconds of a set were over"
                continue
            try:
                if key != (point.model, point.dtype):
                    held, key = None, (point.model, point.dtype)  # let go of one before the next
                    held = _model(point.model, where, dtypes[point.dtype])
                pair = _paired(held, point, ceilings, most)
                found[point.phase].append(pair)
                most = min(most, pair.step.provenance["threads"])
            except MemoryError as fault:
                held, key, left_out[str(point)] = None, None, str(fault)
                continue
            if not meters and point.phase == "decode":
                meters = _meters(_step(held, point), where)
    progress(len(points), len(points), "done")
    return standard.Standard(
        standard.name(ceilings), model, scale, str(where), round(clock() - begun, 1), ceilings,
        tuple(found["prefill"]), tuple(found["decode"]), meters, left_out,
    )  # fmt: skip


def _dtypes(device: torch.device) -> dict[str, str]:
    """What suits the device, and the other of fp32 and 16 bits."""
    first = short_name(pick_dtype("auto", device))
    return {"first": first, "second": "bf16" if first == "fp32" else "fp32"}


def _model(name: str, device: torch.device, dtype: str) -> Model:
    """Real weights where they are had by this name, random ones for another published shape."""
    if name in shapes.names() and name != DEFAULT:
        return random_model(name, device, dtype)
    return load(name, device, dtype, tokenizer=False)


def _step(model: Model, point: Point) -> Callable[[], object]:
    """The pass of a point; it leaves the cache as it found it."""
    width, vocab = point.context + point.new, model.shape.vocab
    cache = model.cache(point.batch, width)
    ids = [[(7919 * i + 31 * row) % vocab for i in range(width)] for row in range(point.batch)]
    if point.phase == "prefill":

        def read() -> None:
            cache.clear()
            prefill(model, cache, ids)

        return read
    prefill(model, cache, [row[: point.context] for row in ids])
    last = [row[-1] for row in ids]

    def write() -> None:
        cache.lengths = [point.context] * point.batch
        decode(model, cache, last)

    return write


def _paired(model: Model, point: Point, ceilings: Calibration, most: int) -> Paired:
    dtype, where = model.dtype_name, str(model.device)
    batch = [counts.Sequence(point.new, point.context)] * point.batch
    work = counts.step(model.shape, batch, weight_dtype=dtype, kv_dtype=dtype)
    reading = point.phase == "decode"
    ceiling = _read(ceilings) if reading else _product(model, ceilings)
    real = not model.source.startswith("random")
    how = {"phase": point.phase, "model": point.model, "weights": "real" if real else "random",
           "dtype": dtype, "batch": point.batch, "context": point.context, "new": point.new,
           "kernels": model.table}  # fmt: skip
    step = _step(model, point)
    return paired(
        ceiling, step, _rounds(step, where, most), 1, device=where, conditions=how, threads=most,
        step_work=work.bytes_streamed if reading else work.flops,
    )  # fmt: skip


def _read(ceilings: Calibration) -> Probe:
    """The read probe that was the fastest when the machine was calibrated."""
    how = ceilings.records[0].conditions
    return read_ceiling(how["device"], how["kind"], how["nbytes"])


def _product(model: Model, ceilings: Calibration) -> Probe:
    """The matrix product that was the fastest in this dtype, of those the engine's kernel makes."""
    rates = ceilings.product_rates(model.dtype_name)
    n, kernel = max(rates, key=rates.__getitem__), model.table["linear"]["gemm"]
    return gemm_probe(model.dtype_name, n, n, n, str(model.device), kernel)


def _rounds(step: Callable[[], object], device: str, threads: int) -> int:
    with clocks.threads(threads if device == "cpu" else None):
        step()
        took = clocks.seconds(step, clocks.synchronizer(device), clocks.core_clock(device))
    return min(_ROUNDS[1], max(_ROUNDS[0], round(_SAMPLED / max(took, 1e-6))))


def _meters(step: Callable[[], object], device: torch.device) -> dict:
    """Energy and memory traffic of a decode pass, or why they cannot be read."""
    spent, moved = energy(step, str(device)), dram(step, str(device))
    return {
        "energy": (spent,) if spent else str(spent),
        "memory traffic": (moved.read, moved.written) if moved else str(moved),
    }
