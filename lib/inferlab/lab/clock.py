"""The clock, and what disturbs it: which clock to read, how long threads stood in line, and how
many threads this machine really gives.

A busy neighbour takes a core away for a few milliseconds at a time. One thread then finds another
core, or waits; several threads that work in step all wait for the one without a core, at every
operation anew, so that a step of many operations suffers far more than one long operation, and
their ratio means nothing. So a ratio is measured on fewer threads than there are cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from inferlab.lab import host

Clock = Callable[[], float]
Waited = Callable[[], float | None]

CALM = 0.05
"""Threads count as undisturbed while at most so many of them stand in line on average. On a machine
with nothing else to do it is 0.001 to 0.02; a busy process makes it 0.3 and more."""

_LOOK, _LOOKS = 0.06, 5  # seconds of running by which a count of threads is judged, and how often
_TASKS = Path("/proc/self/task")


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


def seconds(fn: Callable[[], object], sync: Callable, clock: Clock, calls: int = 1) -> float:
    """Seconds per call, the mean of `calls` in a row, from an idle device to an idle device."""
    sync()
    begun = clock()
    for _ in range(calls):
        fn()
    sync()
    return (clock() - begun) / calls


def warm_up(functions: Iterable[Callable], times: int, sync: Callable[[], None]) -> None:
    """Call each function `times` times, then wait for the device."""
    for _ in range(times):
        for fn in functions:
            fn()
    sync()


def core_clock(device: str | torch.device = "cpu") -> Clock:
    """The clock for work that is compared with other work on the same device.

    On a CPU with one thread: the time that this thread was on a core. It equals the wall clock
    where nobody disturbs, and stands still while a neighbour has the core. Else the wall clock.
    """
    alone = torch.device(device).type == "cpu" and torch.get_num_threads() == 1
    return time.thread_time if alone else time.perf_counter


def waited(tasks: Path = _TASKS) -> float | None:
    """Seconds that the threads of this process, added up, stood in line for a core so far.

    None where the system does not tell. Source: Linux, Documentation/scheduler/sched-stats: the
    second number of /proc/<pid>/task/<tid>/schedstat, in nanoseconds.
    """
    total, told = 0, False
    for file in tasks.glob("*/schedstat"):
        try:
            total += int(file.read_text().split()[1])
            told = True
        except (OSError, ValueError, IndexError):
            continue  # a thread that ended between the listing and the reading
    return total / 1e9 if told else None


def in_line(before: float | None, after: float | None, took: float) -> float:
    """How many threads stood in line on average, by two readings of `waited`, `took` s apart.

    0 where the system is silent.
    """
    return 0.0 if before is None or after is None else (after - before) / took


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """torch's threads set to `count` (None: left as they are), and back afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def spare_threads() -> int:
    """The threads in force, at most one fewer than there are cores, at least one.

    With a core left for it a neighbour does not stop them. A ratio of two times depends on the
    count of threads, so it is measured with this one whether there is a neighbour or not.
    """
    return max(1, min(torch.get_num_threads(), host.cores() - 1))


def calm_threads(
    fn: Callable[[], object], clock: Clock = time.perf_counter, waits: Waited = waited
) -> int:
    """The most threads, of those in force, with which `fn` runs undisturbed; at least 1.

    Each count is looked at for a few hundredths of a second, up to five times. One calm look will
    do, since a neighbour that stays is in all of them; where none is, as many threads are taken
    away as stood in line on average in the calmest (at least 1).
    """
    count = torch.get_num_threads()
    while count > 1:
        with threads(count):
            fn()
            looks = []
            while len(looks) < _LOOKS and not (looks and min(looks) <= CALM):
                looks.append(_look(fn, clock, waits))
        if min(looks) <= CALM:
            break
        count = max(1, count - max(1, round(min(looks))))
    return count


def _look(fn: Callable[[], object], clock: Clock, waits: Waited) -> float:
    """How many threads stood in line on average while `fn` ran."""
    before, begun = waits(), clock()
    fn()
    while clock() - begun < _LOOK:
        fn()
    return in_line(before, waits(), clock() - begun)
