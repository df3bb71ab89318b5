"""Rates and fixed times of this machine, each measured alone: what a `Calibration` is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from inferlab.engine import kernels
from inferlab.engine.device import short_name
from inferlab.engine.generate import decode, prefill
from inferlab.engine.load import random_model
from inferlab.lab import clock as clocks
from inferlab.lab import host
from inferlab.lab.clock import Clock, core_clock
from inferlab.lab.hollow import narrow
from inferlab.lab.intervals import MIN_SAMPLES
from inferlab.lab.meters import interleave, repeat
from inferlab.lab.probes import READS, Probe, gemm_probe, read_probe, torch_dtype
from inferlab.lab.records import Measurement
from inferlab.theory import shapes

BANDWIDTH, GEMM = "read bandwidth", "matrix product rate"
OPERATION, LAYER = "fixed time of an operation", "fixed time of a layer"

_SIZES = {"cpu": (256, 512, 1024, 2048), "mps": (512, 2048, 4096), "cuda": (1024, 4096, 8192)}
_QUEUED = 0.005  # seconds of work that a GPU is given before it is waited for
_GROUP = 5  # calls of which one sample is the best
_DEEP, _SHALLOW = 12, 2  # layers of the two hollow models whose difference is taken
_PAST = 64  # tokens in the cache of a hollow pass


def read_bandwidth(
    device: str = "cpu",
    threads: int | None = None,
    seconds: float = 1.0,
    nbytes: int | None = None,
    clock: Clock | None = None,
) -> Measurement:
    """Read bandwidth in B/s, by the fastest of the probes in `READS` (see `_sustained`).

    What decode does most is read; a ceiling with writes in it (copy, triad) would be lower than
    what decode can reach. threads: torch's, default those in force. Which probe won, and what the
    others reached, stands in the conditions.
    """
    with clocks.threads(threads):
        clock = clock or core_clock(device)
        probes = {kind: read_ceiling(device, kind, nbytes, clock=clock) for kind in READS}
        first = interleave(probes, min_rounds=3, device=device, clock=clock)
        tried = {kind: probes[kind].work / min(times) for kind, times in first.items()}
        return _sustained(BANDWIDTH, probes, tried, seconds, device, clock)


def read_ceiling(
    device: str = "cpu",
    kind: str = "gemv",
    nbytes: int | None = None,
    places: int = 3,
    clock: Clock | None = None,
) -> Probe:
    """The read probe to hold a step against: the fastest of a few buffers, one after the other.

    Where the pages of a buffer lie is chance, and in a virtual machine the same read of one buffer
    was seen to take 10 to 25 % longer than of another, for as long as it lived.
    """
    clock, best, least = clock or core_clock(device), None, math.inf
    for _ in range(places):
        probe = read_probe(device, kind, nbytes)
        (times,) = interleave({kind: probe}, 5, device=device, clock=clock).values()
        if min(times) < least:
            best, least = probe, min(times)
    return best


def fastest_read(device: str = "cpu") -> Probe:
    """The read probe that is the fastest here now, of all kinds."""
    probes = [read_ceiling(device, kind) for kind in READS]
    sync, clock = clocks.synchronizer(device), core_clock(device)
    best = [min(clocks.seconds(p, sync, clock) / p.work for _ in range(5)) for p in probes]
    return probes[best.index(min(best))]


def gemm_rate(
    dtype: str,
    n: int | None = None,
    device: str = "cpu",
    seconds: float = 0.6,
    clock: Clock | None = None,
) -> Measurement:
    """Rate of square matrix products in FLOP/s, n×n×n; the fastest of `gemm_rates` without n."""
    found = gemm_rates(dtype, (n,) if n else None, device, seconds, clock)
    return max(found, key=lambda record: record.value)


def gemm_rates(
    dtype: str,
    sizes: tuple[int, ...] | None = None,
    device: str = "cpu",
    seconds: float = 0.6,
    clock: Clock | None = None,
) -> tuple[Measurement, ...]:
    """Rate of square matrix products in FLOP/s, one record per size, by the faster kernel.

    sizes    default a few up to 2,048 (8,192 on a CUDA GPU), as long as one product takes less than
             a third of `seconds`
    seconds  of measuring, shared among the sizes
    Kernels: plain and packed weights.
    """
    where, kind = torch.device(device), torch_dtype(dtype)
    clock, sizes = clock or core_clock(device), sizes or _SIZES[where.type]
    # "native" is slower by an order of magnitude at these sizes in bf16
    names = [k for k in kernels.candidates(where, kind)["linear"] if k != "native"]
    records, took, before = [], 0.0, 1
    for size in sizes:
        if took * (size / before) ** 3 > seconds / 3:
            break
        probes = {k: gemm_probe(dtype, size, size, size, device, k) for k in names}
        first = interleave(probes, 2, device=device, clock=clock)
        tried = {k: probes[k].work / min(times) for k, times in first.items()}
        took, before = min(min(times) for times in first.values()), size
        share = seconds / len(sizes)
        records.append(_sustained(GEMM, probes, tried, share, device, clock))
    return tuple(records)


def fixed_time(device: str = "cpu", clock: Clock | None = None) -> Measurement:
    """Seconds one operation takes that has nothing to do: adding 1 to 64 numbers in place.

    On a GPU operations are queued, and this is the time from one to the next, not until the end.
    """
    x = torch.zeros(64, device=device)
    with torch.inference_mode():
        return repeat(
            lambda: x.add_(1), 15, 0.1, warmup=500, name=OPERATION, inner=200, device=device,
            clock=clock or core_clock(device),
        )  # fmt: skip


def layer_time(
    device: str = "cpu",
    dtype: str = "auto",
    shape: str = "smollm2-135m",
    rounds: int = 15,
    clock: Clock | None = None,
) -> Measurement:
    """Seconds a decoder layer takes before it reads a weight, in a decode pass of batch 1.

    (t_12 − t_2) / 10, round by round, of hollow models (`hollow.narrow`) with 12 and 2 layers of
    `shape`: the embedding and the head cancel. On a GPU passes are queued as in `fixed_time`.
    """
    runs, kind = {}, ""
    for layers in (_DEEP, _SHALLOW):
        model = random_model(narrow(shapes.get(shape), layers), device, dtype)
        runs[layers], kind = _pass(model), short_name(model.dtype)
    clock = clock or core_clock(device)
    times = interleave(runs, rounds, 0.2, 3, inner=4, device=device, clock=clock)
    pairs = zip(times[_DEEP], times[_SHALLOW], strict=True)
    samples = [(deep - shallow) / (_DEEP - _SHALLOW) for deep, shallow in pairs]
    how = {"shape": shape, "dtype": kind, "context": _PAST, "batch": 1, "device": str(device),
           "layers": [_DEEP, _SHALLOW], "inner": 4, "warmup": 3}  # fmt: skip
    return Measurement.from_samples(LAYER, samples, "s", how, host.provenance(device))


def _pass(model):
    """A decode pass that leaves the cache as it was."""
    cache = model.cache(1, _PAST + 1)
    prefill(model, cache, [i % model.shape.vocab for i in range(_PAST)])

    def run() -> None:
        cache.lengths = [_PAST]
        decode(model, cache, [1])

    return run


def _sustained(
    name: str,
    probes: Mapping[str, Probe],
    tried: Mapping[str, float],
    seconds: float,
    device: str,
    clock: Clock,
) -> Measurement:
    """The rate of the probe that was fastest in the trial, run alone for `seconds`.

    A sample is the best of _GROUP calls in a row (of one, where calls are long), as in STREAM,
    which reports the best of its repetitions: a neighbour that takes the core for a while lowers a
    mean, not a ceiling. On a GPU so many calls are queued at once that waiting for the last of them
    is lost in their time.
    """
    winner = max(tried, key=tried.__getitem__)
    probe = probes[winner]
    took = probe.work / tried[winner]
    inner = 1 if torch.device(device).type == "cpu" else max(1, round(_QUEUED / took))
    group = 1 if took * inner > seconds / (MIN_SAMPLES * _GROUP) else _GROUP
    times = interleave(
        {winner: probe}, MIN_SAMPLES * group, seconds, 0, inner=inner, device=device, clock=clock
    )[winner]
    whole = len(times) // group * group
    rates = [probe.work / min(times[i : i + group]) for i in range(0, whole, group)]
    how = {**probe.conditions, "probe": winner, "tried": tried, "best_of": group, "inner": inner}
    return Measurement.from_samples(name, rates, f"{probe.unit}/s", how, host.provenance(device))
