"""Meters: how long, how many FLOPs, how many bytes. They return records and print nothing.

Every meter warms up by itself, waits for the device before it reads the clock, and says "not
available here, because …" (`Unavailable`) where it cannot read. Those that have a module of their
own (`counters`, `pairs`, `energy`, `dram`) stand here under the same names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from inferlab.lab.clock import Clock, seconds, synchronizer, warm_up
from inferlab.lab.counters import FlopCount, Memory, Unavailable, flops, memory
from inferlab.lab.dram import dram
from inferlab.lab.energy import energy
from inferlab.lab.intervals import MIN_SAMPLES
from inferlab.lab.pairs import Paired, paired
from inferlab.lab.records import Measurement, provenance
from inferlab.theory.latency import Timeline

__all__ = [
    "Clock", "FlopCount", "Memory", "Paired", "Timed", "Unavailable", "dram", "energy", "flops",
    "interleave", "memory", "paired", "repeat", "synchronizer", "timed", "timeline",
]  # fmt: skip


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
    warm_up((fn,), warmup, sync)
    samples: list[float] = []
    begun = clock()
    while len(samples) < min_repeats or clock() - begun < min_seconds:
        samples.append(seconds(fn, sync, clock, inner))
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
    warm_up(functions.values(), warmup, sync)
    found: dict[str, list[float]] = {name: [] for name in functions}
    begun, rounds = clock(), 0
    while rounds < min_rounds or clock() - begun < min_seconds:
        for name, fn in functions.items():
            found[name].append(seconds(fn, sync, clock, inner))
        rounds += 1
    return {name: tuple(samples) for name, samples in found.items()}


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

    def elapsed(self) -> float:
        """Seconds from `sent` until now, the device being done."""
        self._sync()
        return self._clock() - self._sent

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
