"""Ceilings of the machine this runs on, measured: read bandwidth, matrix-product rate, fixed time.

They are what roofline arguments divide by, so each is the best that torch reaches here among a few
documented probes, with the threads that run undisturbed, and carries its date. Speed drifts: to say
how near a step comes to a ceiling, run the probe beside it (`meters.paired`), not once a day.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from inferlab.engine.device import facts, pick_dtype
from inferlab.lab import clock, rates
from inferlab.lab.probes import Probe, gemm_probe, read_probe, working_set
from inferlab.lab.rates import (
    fixed_time,
    gemm_rate,
    gemm_rates,
    layer_time,
    read_bandwidth,
    read_ceiling,
)
from inferlab.lab.records import Measurement
from inferlab.lab.tuning import tune, tuned
from inferlab.theory.units import canonical_dtype

__all__ = [
    "Calibration", "Probe", "calibrate", "fixed_time", "gemm_probe", "gemm_rate", "gemm_rates",
    "layer_time", "read_bandwidth", "read_ceiling", "read_probe", "tune", "tuned", "working_set",
]  # fmt: skip

_SECONDS = {"read": 1.0, "product": 1.0}  # of a quick calibration, each
_CALM = 0.1  # threads in line on average during a task, git and the like asked about it included


@dataclass(frozen=True)
class Calibration:
    """Measured ceilings of one machine on one day; a Machine for `theory.roofline`.

    records  the measurements: read bandwidth, one matrix product rate per dtype and size, fixed
             time of an operation and of a layer
    """

    device: str
    records: tuple[Measurement, ...]

    @property
    def bandwidth(self) -> float:
        """Read bandwidth, B/s (median)."""
        return self._record(rates.BANDWIDTH).value

    def peak_flops(self, dtype: str) -> float:
        """Best matrix product rate of `dtype`, FLOP/s. Raises ValueError when not measured."""
        return max(self.product_rates(dtype).values())

    def product_rates(self, dtype: str) -> dict[int, float]:
        """{n: FLOP/s} of the products n×n×n of `dtype`. Raises ValueError when not measured."""
        wanted, found = canonical_dtype(dtype), {}
        products = [r for r in self.records if r.name == rates.GEMM]
        for record in products:
            if record.conditions["dtype"] == wanted:
                found[record.conditions["n"]] = record.value
        if not found:
            measured = dict.fromkeys(r.conditions["dtype"] for r in products)
            raise ValueError(
                f"no matrix product rate of {dtype} was measured here, only of "
                f"{', '.join(measured)}: pass dtypes=({dtype!r},) to calibrate()"
            )
        return found

    @property
    def fixed_time(self) -> float:
        """Seconds of an operation with nothing to do."""
        return self._record(rates.OPERATION).value

    @property
    def layer_time(self) -> float:
        """Seconds of a decoder layer with next to no weights, batch 1."""
        return self._record(rates.LAYER).value

    @property
    def threads(self) -> int:
        """torch's threads while it was measured."""
        return self.records[0].provenance["threads"]

    @property
    def name(self) -> str:
        """The accelerator, or the CPU with its threads."""
        where = self.records[0].provenance
        threads = f"{where['threads']} thread{'s' * (where['threads'] > 1)}"
        return where.get("accelerator") or f"{where['cpu']}, {threads}"

    @property
    def date(self) -> str:
        """When it was measured, ISO 8601, UTC."""
        return self.records[0].provenance["date"]

    @property
    def source(self) -> str:
        """What these numbers are: never a nameplate."""
        return f"measured ceilings of {self.name}, {self.date}"

    def to_dict(self) -> dict:
        """Plain JSON values, from which `from_dict` makes an equal calibration."""
        return {"device": self.device, "records": [r.to_dict() for r in self.records]}

    @classmethod
    def from_dict(cls, content: dict) -> Calibration:
        """The calibration of `to_dict`. Raises ValueError when something is missing."""
        try:
            device, records = content["device"], content["records"]
        except (KeyError, TypeError) as fault:
            raise ValueError(f"this is no saved calibration: {fault!r}") from None
        made = cls(device, tuple(map(Measurement.from_dict, records)))
        names = {record.name for record in made.records}
        missing = {rates.BANDWIDTH, rates.GEMM, rates.OPERATION, rates.LAYER} - names
        if missing:
            raise ValueError(f"the calibration lacks {', '.join(sorted(missing))}: calibrate again")
        return made

    def to_json(self) -> str:
        """JSON text from which `from_json` makes an equal calibration."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """The calibration of `to_json`."""
        return cls.from_dict(json.loads(text))

    def _record(self, name: str) -> Measurement:
        return next(record for record in self.records if record.name == name)

    def __str__(self) -> str:
        where = self.records[0].provenance
        head = f"{self.source}; load {where['load']:.3g} on {where['cores']} cores:"
        return "\n".join([head, *(f"  {_label(record)}{record}" for record in self.records)])


def calibrate(
    device: str = "cpu",
    quick: bool = True,
    dtypes: tuple[str, ...] | None = None,
    threads: int | None = None,
) -> Calibration:
    """Measure the ceilings of `device`; quick: in a few seconds.

    dtypes   default fp32 and bf16 on a CPU, fp32 and fp16 elsewhere, and bf16 on a CUDA GPU of
             capability 8.0 or more
    threads  torch's threads on a CPU; default as many of those in force as run undisturbed
             (`clock.calm_threads`): beside a busy neighbour fewer, and the records say so
    quick=False takes four times as long.
    """
    where, scale = torch.device(device), 1 if quick else 4
    asked = [canonical_dtype(dtype) for dtype in dtypes or _default_dtypes(where)]
    budget = scale * _SECONDS["product"]
    tasks = [lambda: [read_bandwidth(device, seconds=scale * _SECONDS["read"])]]
    for dtype in asked:
        tasks.append(lambda dtype=dtype: gemm_rates(dtype, device=device, seconds=budget))
    tasks += [lambda: [fixed_time(device)], lambda: [layer_time(device, rounds=15 * scale)]]
    if threads is not None or where.type != "cpu":
        with clock.threads(threads):
            return Calibration(str(device), tuple(r for task in tasks for r in task()))
    return Calibration(str(device), _undisturbed(tasks, read_probe(device, "sum")))


def _undisturbed(tasks: list[Callable[[], Iterable[Measurement]]], probe: Probe) -> tuple:
    """The records of all tasks, on as many threads as ran undisturbed from first to last.

    A task during which threads stood in line is done again, once; then all begins anew with fewer
    threads, since ceilings belong together only if they are of the same threads.
    """
    count = clock.calm_threads(probe)
    while True:
        with clock.threads(count):
            records: list[Measurement] = []
            for task in tasks:
                found = _calm(task, count) or _calm(task, count)
                if found is None:
                    break
                records += found
            else:
                return tuple(records)
            count = min(count - 1, clock.calm_threads(probe))


def _calm(task: Callable[[], Iterable[Measurement]], count: int) -> list[Measurement] | None:
    """What the task measured; None where several threads stood in line meanwhile."""
    before, begun = clock.waited(), time.perf_counter()
    found = list(task())
    after, took = clock.waited(), time.perf_counter() - begun
    silent = count == 1 or before is None or after is None
    return found if silent or after - before <= _CALM * took else None


def _default_dtypes(device: torch.device) -> tuple[str, ...]:
    if device.type == "cpu":
        return ("fp32", "bf16")
    modern = pick_dtype("auto", device, facts()) is torch.bfloat16
    return ("fp32", "fp16", "bf16") if modern else ("fp32", "fp16")


def _label(record: Measurement) -> str:
    if record.name != rates.GEMM:
        return ""
    n = record.conditions["n"]
    return f"{record.conditions['dtype']} {n}×{n}×{n}, "
