"""Ceilings of the machine this runs on, measured: read bandwidth, matrix-product rate, fixed time.

They are what roofline arguments divide by, so each is the best that torch reaches here among a few
documented probes, with the thread count in force, and carries its date. Speed drifts: to say how
near a step comes to a ceiling, run the probe beside it (`meters.paired`), not once a day.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from inferlab.engine import kernels
from inferlab.engine.device import facts, pick_dtype
from inferlab.lab import host
from inferlab.lab.intervals import MIN_SAMPLES
from inferlab.lab.meters import Clock, interleave, repeat
from inferlab.lab.probes import READS, Probe, gemm_probe, read_probe, torch_dtype, working_set
from inferlab.lab.records import Measurement
from inferlab.lab.tuning import tune, tuned
from inferlab.theory.units import canonical_dtype

__all__ = [
    "Calibration", "Probe", "calibrate", "fixed_time", "gemm_probe", "gemm_rate", "read_bandwidth",
    "read_probe", "tune", "tuned", "working_set",
]  # fmt: skip

_SIZES = {"cpu": (256, 512, 1024, 2048), "mps": (512, 2048, 4096), "cuda": (1024, 4096, 8192)}
_SECONDS = {"read": 1.0, "product": 0.6}  # of a quick calibration, each
_QUEUED = 0.005  # seconds of work that a GPU is given before it is waited for
_GROUP = 5  # calls of which one sample is the best
_BANDWIDTH, _GEMM, _FIXED = "read bandwidth", "matrix product rate", "fixed time of an operation"


def read_bandwidth(
    device: str = "cpu",
    threads: int | None = None,
    seconds: float = 1.0,
    nbytes: int | None = None,
    clock: Clock = time.perf_counter,
) -> Measurement:
    """Read bandwidth in B/s, by the fastest of the probes in `READS` (see `_sustained`).

    What decode does most is read; a ceiling with writes in it (copy, triad) would be lower than
    what decode can reach. `threads`: torch's threads, default those in force. Which probe won,
    and what the others reached, stands in the conditions.
    """
    with _threads(threads):
        probes = {kind: read_probe(device, kind, nbytes) for kind in READS}
        first = interleave(probes, min_rounds=3, device=device, clock=clock)
        tried = {kind: probes[kind].work / min(times) for kind, times in first.items()}
        return _sustained(_BANDWIDTH, probes, tried, seconds, device, clock)


def gemm_rate(
    dtype: str,
    n: int | None = None,
    device: str = "cpu",
    seconds: float = 0.6,
    clock: Clock = time.perf_counter,
) -> Measurement:
    """Rate of square matrix products in FLOP/s, at the fastest of several sizes and kernels.

    n  one size only; default a few sizes up to 2,048 (8,192 on a CUDA GPU), as long as the next
    would take less than a third of `seconds`. Kernels: plain and packed weights.
    """
    where, kind = torch.device(device), torch_dtype(dtype)
    probes, tried = {}, {}
    for kernel in kernels.candidates(where, kind)["linear"]:
        if kernel == "native":  # slower by an order of magnitude at these sizes in bf16
            continue
        took, before = 0.0, 1
        for size in [n] if n else _SIZES[where.type]:
            if took * (size / before) ** 3 > seconds / 3:
                break
            key, probe = f"{kernel} {size}", gemm_probe(dtype, size, size, size, device, kernel)
            took = min(interleave({key: probe}, 2, device=device, clock=clock)[key])
            before, probes[key], tried[key] = size, probe, probe.work / took
    return _sustained(_GEMM, probes, tried, seconds, device, clock)


def fixed_time(device: str = "cpu", clock: Clock = time.perf_counter) -> Measurement:
    """Seconds one operation takes that has nothing to do: adding 1 to 64 numbers in place.

    On a GPU operations are queued, and this is the time from one to the next, not until the end.
    """
    x = torch.zeros(64, device=device)
    with torch.inference_mode():
        return repeat(
            lambda: x.add_(1), 15, 0.1, warmup=500, name=_FIXED, inner=200, device=device,
            clock=clock,
        )  # fmt: skip


@dataclass(frozen=True)
class Calibration:
    """Measured ceilings of one machine on one day; a Machine for `theory.roofline`.

    records  the measurements: read bandwidth, one matrix product rate per dtype, fixed time
    """

    device: str
    records: tuple[Measurement, ...]

    @property
    def bandwidth(self) -> float:
        """Read bandwidth, B/s (median)."""
        return self._record(_BANDWIDTH).value

    def peak_flops(self, dtype: str) -> float:
        """Best matrix product rate of `dtype`, FLOP/s. Raises ValueError when not measured."""
        wanted = canonical_dtype(dtype)
        rates = {r.conditions["dtype"]: r for r in self.records if r.name == _GEMM}
        if wanted not in rates:
            raise ValueError(
                f"no matrix product rate of {dtype} was measured here, only of "
                f"{', '.join(rates)}: pass dtypes=({dtype!r},) to calibrate()"
            )
        return rates[wanted].value

    @property
    def fixed_time(self) -> float:
        """Seconds of an operation with nothing to do."""
        return self._record(_FIXED).value

    @property
    def name(self) -> str:
        """The accelerator, or the CPU with its threads."""
        where = self.records[0].provenance
        return where.get("accelerator") or f"{where['cpu']}, {where['threads']} threads"

    @property
    def date(self) -> str:
        """When it was measured, ISO 8601, UTC."""
        return self.records[0].provenance["date"]

    @property
    def source(self) -> str:
        """What these numbers are: never a nameplate."""
        return f"measured ceilings of {self.name}, {self.date}"

    def to_json(self) -> str:
        """JSON text from which `from_json` makes an equal calibration."""
        content = {"device": self.device, "records": [r.to_dict() for r in self.records]}
        return json.dumps(content, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """The calibration of `to_json`."""
        content = json.loads(text)
        return cls(content["device"], tuple(map(Measurement.from_dict, content["records"])))

    def _record(self, name: str) -> Measurement:
        return next(record for record in self.records if record.name == name)

    def __str__(self) -> str:
        where = self.records[0].provenance
        head = f"{self.source}; load {where['load']:.3g} on {where['cores']} cores:"
        return "\n".join([head, *(f"  {record}" for record in self.records)])


def calibrate(
    device: str = "cpu", quick: bool = True, dtypes: tuple[str, ...] | None = None
) -> Calibration:
    """Measure the ceilings of `device` at torch's present thread count; quick: a few seconds.

    dtypes  default fp32 and bf16 on a CPU, fp32 and fp16 elsewhere, and bf16 on a CUDA GPU of
    capability 8.0 or more. quick=False takes four times as long.
    """
    scale = 1 if quick else 4
    records = [read_bandwidth(device, seconds=scale * _SECONDS["read"])]
    for dtype in dtypes or _default_dtypes(torch.device(device)):
        seconds = scale * _SECONDS["product"]
        records.append(gemm_rate(canonical_dtype(dtype), device=device, seconds=seconds))
    records.append(fixed_time(device))
    return Calibration(str(device), tuple(records))


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


def _default_dtypes(device: torch.device) -> tuple[str, ...]:
    if device.type == "cpu":
        return ("fp32", "bf16")
    modern = pick_dtype("auto", device, facts()) is torch.bfloat16
    return ("fp32", "fp16", "bf16") if modern else ("fp32", "fp16")


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
