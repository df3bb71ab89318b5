"""Meters: how long, how many FLOPs, how many bytes. They return records and print nothing.

The clock lives here. Every meter warms up by itself, waits for the device before it reads the
clock, and says "not available here, because …" (`Unavailable`) where it cannot read. The meters
that need no clock are in `counters` and stand here under the same names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from inferlab.lab.counters import FlopCount, Memory, Unavailable, flops, memory
from inferlab.lab.intervals import MIN_SAMPLES, Interval, ratio
from inferlab.lab.records import Measurement, provenance
from inferlab.theory.latency import Timeline

__all__ = [
    "FlopCount", "Memory", "Paired", "Timed", "Unavailable", "flops", "interleave", "memory",
    "paired", "repeat", "synchronizer", "timed", "timeline",
]  # fmt: skip

Clock = Callable[[], float]


def synchronizer(device: str | torch.device = "cpu") -> Callable[[], None]:
    """The function that waits until `device` has done all it was given; on a CPU it does nothing.

    A GPU returns from a call before the work is done: without this wait a clock reads the time it
    takes to ask.
    """
    where = torch.device(device)
    if where.type == "cuda":
        return lambda: torch.cuda.synchronize(where)
    if where.type == "mps":
        return torch.mps.synchronize
    return lambda: None


def repeat(
    fn: Callable[[], object],
    min_repeats: int = 15,
    min_seconds: float = 0.2,
    warmup: int = 2,
    *,
    name: str = "time of a call",
    inner: int = 1,
    device: str = "cpu",
    conditions: Mapping | None = None,
    clock: Clock = time.perf_counter,
) -> Measurement:
    """Seconds per call of fn, sampled until both `min_repeats` samples and `min_seconds` are there.

    warmup  calls before the first sample; they are not counted
    inner   calls per sample, for functions shorter than the clock can tell (a sample is their
            mean)
    Each sample ends when the device is done. Raises ValueError for counts below 1 (warmup below 0).
    """
    if min_repeats < 1 or inner < 1 or warmup < 0:
        raise ValueError("repeat needs min_repeats >= 1, inner >= 1 and warmup >= 0")
    sync = synchronizer(device)
    _warm_up((fn,), warmup, sync)
    samples: list[float] = []
    begun = clock()
    while len(samples) < min_repeats or clock() - begun < min_seconds:
        samples.append(_seconds(fn, sync, clock, inner))
    how = {"warmup": warmup, "inner": inner, "device": str(device), **(conditions or {})}
    return Measurement.from_samples(name, samples, "s", how, provenance(device))


def interleave(
    functions: Mapping[str, Callable[[], object]],
    min_rounds: int = MIN_SAMPLES,
    min_seconds: float = 0.0,
    warmup: int = 1,
    *,
    inner: int = 1,
    device: str = "cpu",
    clock: Clock = time.perf_counter,
) -> dict[str, tuple[float, ...]]:
    """Seconds per call of several functions, one of each per round, in one order throughout.

    Ends when both `min_rounds` rounds and `min_seconds` are there; a sample is the mean of `inner`
    calls in a row. For comparing candidates: a
    machine that slows down slows all of them (`intervals.ratio` of two of the results).
    """
    if not functions or min_rounds < 1 or warmup < 0:
        raise ValueError("interleave needs at least one function, min_rounds >= 1, warmup >= 0")
    sync = synchronizer(device)
    _warm_up(functions.values(), warmup, sync)
    found: dict[str, list[float]] = {name: [] for name in functions}
    begun, rounds = clock(), 0
    while rounds < min_rounds or clock() - begun < min_seconds:
        for name, fn in functions.items():
            found[name].append(_seconds(fn, sync, clock, inner))
        rounds += 1
    return {name: tuple(samples) for name, samples in found.items()}


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
    clock: Clock = time.perf_counter,
) -> Paired:
    """Alternate ceiling and step for `rounds` rounds; both samples of a round lie side by side.

    A ceiling with a `work` attribute (a probe of `ceilings`) passes it on; `step_work` is that of
    one step, in the same unit. balance: each sample of the ceiling is a mean of so many calls, and
    each of the step likewise, that both take about equally long: a busy neighbour then slows both
    alike, where a call shorter than a scheduler's time slice is stopped whole or not at all. So
    both are called a few times per round, and must leave things as they found them (a cache that
    grew is set back). Raises ValueError for fewer than one round.
    """
    if rounds < 1 or warmup < 0:
        raise ValueError("paired needs rounds >= 1 and warmup >= 0")
    sync = synchronizer(device)
    _warm_up((ceiling, step), warmup, sync)
    above, below = _calls(ceiling, step, sync, clock) if balance else (1, 1)
    around, steps = [_seconds(ceiling, sync, clock, above)], []
    for _ in range(rounds):
        steps.append(_seconds(step, sync, clock, below))
        around.append(_seconds(ceiling, sync, clock, above))
    beside = [(before + after) / 2 for before, after in zip(around, around[1:], strict=False)]
    how = {"warmup": warmup, "paired": True, "device": str(device), **(conditions or {})}
    probe = {**how, "probe": getattr(ceiling, "name", "ceiling"), "inner": above}
    where = provenance(device)
    return Paired(
        Measurement.from_samples("time of the ceiling", beside, "s", probe, where),
        Measurement.from_samples("time of the step", steps, "s", {**how, "inner": below}, where),
        getattr(ceiling, "work", None),
        step_work,
    )


class Timed:
    """An iterator of (step, seconds since `sent`) over any iterable of steps; see `timed`."""

    def __init__(self, steps: Iterable, sync: Callable, sent: float | None, clock: Clock) -> None:
        self._steps, self._sync, self._sent, self._clock = iter(steps), sync, sent, clock
        self.times: list[float] = []

    def __iter__(self) -> Iterator[tuple[object, float]]:
        return self

    def __next__(self) -> tuple[object, float]:
        if self._sent is None:
            self._sync()
            self._sent = self._clock()
        step = next(self._steps)
        self._sync()
        self.times.append(self._clock() - self._sent)
        return step, self.times[-1]

    def timeline(self) -> Timeline:
        """The times so far as a `theory.latency.Timeline` that was sent at 0."""
        return Timeline(sent=0.0, tokens=tuple(self.times))


def timed(
    steps: Iterable,
    device: str = "cpu",
    *,
    sent: float | None = None,
    clock: Clock = time.perf_counter,
) -> Timed:
    """Stamp each step of an engine from outside: `for step, t in timed(generate(...))`.

    t is in seconds since the request was sent: since the first step was asked for, or since `sent`
    (a reading of the same clock), so that tokenizing can be inside. Stamped when the device is
    done, before the caller sees the step; what the caller does between steps counts as time.
    """
    return Timed(steps, synchronizer(device), sent, clock)


def timeline(
    steps: Iterable,
    device: str = "cpu",
    *,
    sent: float | None = None,
    clock: Clock = time.perf_counter,
) -> tuple[list, Timeline]:
    """Run `steps` to the end: the list of them, and their `theory.latency.Timeline`."""
    run = timed(steps, device, sent=sent, clock=clock)
    return [step for step, _ in run], run.timeline()


def _warm_up(functions: Iterable[Callable], times: int, sync: Callable[[], None]) -> None:
    for _ in range(times):
        for fn in functions:
            fn()
    sync()


def _calls(first: Callable, second: Callable, sync: Callable, clock: Clock) -> tuple[int, int]:
    """Calls per sample of each that make the samples about equally long, at most 1,000 of one."""
    one, other = _seconds(first, sync, clock), _seconds(second, sync, clock)
    if min(one, other) <= 0:
        return 1, 1
    return min(1000, max(1, round(other / one))), min(1000, max(1, round(one / other)))


def _seconds(fn: Callable[[], object], sync: Callable, clock: Clock, calls: int = 1) -> float:
    """Seconds per call, the mean of `calls` in a row, from an idle device to an idle device."""
    sync()
    begun = clock()
    for _ in range(calls):
        fn()
    sync()
    return (clock() - begun) / calls
