"""A trial run several times over, half of the runs beside a busy process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from inferlab.lab.claims import Result
from inferlab.lab.experiments import trials

_BUSY = "while True: pass"


@dataclass(frozen=True)
class Run:
    """One run of a trial: its result, how long it took, whether a process kept a core busy beside
    it, and which falsehood was planted ("" for none).
    """

    result: Result
    seconds: float
    busy: bool
    plant: str = ""

    @property
    def as_foreseen(self) -> bool:
        """Whether verdict and outcomes are those of the ledger: of a plant, whether it escaped."""
        return trials.as_foreseen(self.result)


def repeat(
    id: str,
    times: int = 1,
    busy: bool = False,
    device: str = "cpu",
    progress: Callable[[int], None] = lambda done: None,
) -> list[Run]:
    """Run the trial of a claim so many times; `busy`: every second run beside a busy process.

    Raises ValueError as `trials.run` does, and for fewer than one run.
    """
    if times < 1:
        raise ValueError(f"a trial is run {times} times: ask for at least one")
    runs = []
    for index in range(times):
        beside = busy and index % 2 == 1
        with _neighbour(beside):
            runs.append(_timed(id, device, beside))
        progress(index + 1)
    return runs


def plant(id: str, device: str = "cpu", names: Sequence[str] | None = None) -> list[Run]:
    """Run the trial of a claim once with each of its falsehoods, or with those named."""
    found = trials.trial(id)
    names = (found.plants if found else ()) if names is None else names
    return [_timed(id, device, False, name) for name in names]


def _timed(id: str, device: str, busy: bool, name: str = "") -> Run:
    begun = time.perf_counter()
    result = trials.run(id, name, device)
    return Run(result, time.perf_counter() - begun, busy, name)


@contextmanager
def _neighbour(wanted: bool) -> Iterator[None]:
    """A process that keeps one core busy, for as long as the block lasts."""
    if not wanted:
        yield
        return
    other = subprocess.Popen([sys.executable, "-S", "-c", _BUSY])
    try:
        yield
    finally:
        other.kill()
        other.wait()
