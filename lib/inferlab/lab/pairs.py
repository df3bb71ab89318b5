"""A step beside its ceiling: both timed in turn, on as many threads as run undisturbed.

What is reported is the ratio. Both samples of a round lie side by side in time, so a machine whose
speed drifts drifts for both; what a busy neighbour does is kept out as `clock` describes: a core is
left to it, and where one thread remains, the time it was on its core is what counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from inferlab.lab import clock as clocks
from inferlab.lab.clock import Clock, Waited
from inferlab.lab.intervals import Interval, ratio
from inferlab.lab.records import Measurement, provenance

_TRIES = 3  # rounds tried per round wanted, before a thread is taken away


@dataclass(frozen=True)
class Paired:
    """Rounds of ceiling, step, ceiling, step, …, ceiling: seconds per call of both, by round.

    The ceiling's sample of a round is the mean of those on either side of the step, so a drift of
    the machine's speed cancels to first order. `work` is what one call does (bytes or FLOPs, one
    unit for both), None where it was not told.
    """

    ceiling: Measurement
    step: Measurement
    ceiling_work: float | None = None
    step_work: float | None = None

    def ratio(self, level: float = 0.95) -> Interval:
        """Time of the step ÷ time of the ceiling probe, dimensionless."""
        return ratio(self.step, self.ceiling, level=level)

    def efficiency(self, level: float = 0.95) -> Interval:
        """Rate of the step ÷ rate of the ceiling, dimensionless: MBU or MFU of this ceiling.

        (step_work / t_step) / (ceiling_work / t_ceiling). Raises ValueError without both works.
        """
        if not self.ceiling_work or not self.step_work:
            raise ValueError(
                "an efficiency needs the work of both: give paired() step_work, and a ceiling that "
                "knows its own (ceilings.read_probe, ceilings.gemm_probe)"
            )
        scale = self.step_work / self.ceiling_work
        return ratio(self.ceiling, self.step, scale, level)

    def to_dict(self) -> dict:
        """Plain JSON values, from which `from_dict` makes an equal pair."""
        return {
            "ceiling": self.ceiling.to_dict(), "step": self.step.to_dict(),
            "ceiling_work": self.ceiling_work, "step_work": self.step_work,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping) -> Paired:
        """The pair of `to_dict`. Raises ValueError when it is none, or not of the same rounds."""
        try:
            both = (Measurement.from_dict(data[key]) for key in ("ceiling", "step"))
            found = cls(*both, data["ceiling_work"], data["step_work"])
        except (KeyError, TypeError) as fault:
            raise ValueError(f"this is no saved pair of ceiling and step: {fault!r}") from None
        if found.ceiling.n != found.step.n:
            counts = f"{found.ceiling.n} samples of the ceiling, {found.step.n} of the step"
            raise ValueError(f"{counts}: a pair has one of each per round")
        return found


def paired(
    ceiling: Callable[[], object],
    step: Callable[[], object],
    rounds: int = 15,
    warmup: int = 2,
    *,
    step_work: float | None = None,
    balance: bool = True,
    device: str = "cpu",
    conditions: Mapping | None = None,
    threads: int | None = None,
    clock: Clock | None = None,
    waits: Waited = clocks.waited,
) -> Paired:
    """Alternate ceiling and step for `rounds` rounds; both samples of a round lie side by side.

    A ceiling with a `work` attribute (a probe of `ceilings`) passes it on; `step_work` is that of
    one step, in the same unit. balance: each sample of the ceiling is a mean of so many calls, and
    each of the step likewise, that both take about equally long. So both are called a few times
    per round, and must leave things as they found them (a cache that grew is set back).

    threads  the most of torch's threads to use on a CPU for both; None: those in force, less one
             where that leaves a core free (`clock.spare_threads`), so that a ratio is of the same
             threads beside a neighbour and without one. Of these, as many as run undisturbed
             (`clock.calm_threads`); a round in which threads stood in line is discarded, and where
             most are, one thread fewer is tried. The record says how many it became.
    clock    default: with one thread on a CPU its time on the core, else the wall clock

    Memory drifts within seconds: a ratio that is to repeat within 10 % takes about 2 s of rounds,
    75 of a small model's decode (`python -m benchmarks.ratios` shows it). Raises ValueError for
    fewer than one round.
    """
    if rounds < 1 or warmup < 0:
        raise ValueError("paired needs rounds >= 1 and warmup >= 0")
    sync = clocks.synchronizer(device)
    count = None
    if torch.device(device).type == "cpu":
        with clocks.threads(threads or clocks.spare_threads()):
            count = clocks.calm_threads(step, clock or time.perf_counter, waits)
    while True:
        with clocks.threads(count):
            one = count in (None, 1)
            here = _Rounds(sync, clock or clocks.core_clock(device), _nothing if one else waits)
            found = here.run(ceiling, step, rounds, warmup, balance)
            where = provenance(device)
        if found is not None:
            break
        count -= 1
    beside, steps, (above, below) = found
    how = {"warmup": warmup, "paired": True, "device": str(device), "clock": _name(here.clock),
           "discarded": here.discarded, **(conditions or {})}  # fmt: skip
    probe = {**how, "probe": getattr(ceiling, "name", "ceiling"), "inner": above}
    return Paired(
        Measurement.from_samples("time of the ceiling", beside, "s", probe, where),
        Measurement.from_samples("time of the step", steps, "s", {**how, "inner": below}, where),
        getattr(ceiling, "work", None),
        step_work,
    )


class _Rounds:
    """Rounds at one count of threads; `discarded` counts those in which threads stood in line."""

    def __init__(self, sync: Callable, clock: Clock, waits: Waited) -> None:
        self.sync, self.clock, self.waits, self.discarded = sync, clock, waits, 0

    def run(self, ceiling, step, rounds: int, warmup: int, balance: bool):
        """Samples of the ceiling, of the step, and calls per sample; None if too few were calm."""
        clocks.warm_up((ceiling, step), warmup, self.sync)
        above, below = self._calls(ceiling, step) if balance else (1, 1)
        beside, steps = [], []
        before, calm_before = self._sample(ceiling, above)
        for _ in range(rounds * _TRIES):
            took, calm = self._sample(step, below)
            after, calm_after = self._sample(ceiling, above)
            if calm_before and calm and calm_after:
                beside.append((before + after) / 2)
                steps.append(took)
            else:
                self.discarded += 1
            before, calm_before = after, calm_after
            if len(steps) == rounds:
                return beside, steps, (above, below)
        return None

    def _sample(self, fn: Callable, calls: int) -> tuple[float, bool]:
        """Seconds per call, and whether nobody stood in line meanwhile."""
        stood = self.waits()
        took = clocks.seconds(fn, self.sync, self.clock, calls)
        return took, clocks.in_line(stood, self.waits(), took * calls) <= clocks.CALM

    def _calls(self, first: Callable, second: Callable) -> tuple[int, int]:
        """Calls per sample of each that make the samples equally long, at most 1,000 of one."""
        one = clocks.seconds(first, self.sync, self.clock)
        other = clocks.seconds(second, self.sync, self.clock)
        if min(one, other) <= 0:
            return 1, 1
        return min(1000, max(1, round(other / one))), min(1000, max(1, round(one / other)))


def _nothing() -> None:
    return None


def _name(clock: Clock) -> str:
    return "time on the core" if clock is time.thread_time else "wall"
