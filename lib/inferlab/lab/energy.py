"""Energy of a call, in joules, from the counters that count it: NVML's of a GPU, RAPL's of a CPU.

Both count what the whole board or the whole package took, idle power and neighbours included, and
both are written now and then only, so they are read over windows of seconds.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import torch

from inferlab.lab import clock as clocks
from inferlab.lab.clock import Clock
from inferlab.lab.counters import Unavailable
from inferlab.lab.records import Measurement, provenance

_POWERCAP = Path("/sys/class/powercap")
_BATCH = 0.05  # seconds of calls between two readings of the counter
_PATIENCE = 3  # windows' lengths after which a counter that stands still is given up


class EnergyCounter(Protocol):
    """Joules so far, from any start, never falling."""

    name: str

    def joules(self) -> float: ...


def energy(
    fn: Callable[[], object],
    device: str = "cpu",
    seconds: float = 2.0,
    windows: int = 3,
    *,
    counter: EnergyCounter | Unavailable | None = None,
    conditions: Mapping | None = None,
    clock: Clock = time.perf_counter,
) -> Measurement | Unavailable:
    """Joules per call of fn: one sample per window of at least `seconds` of calls without a pause.

    A window begins and ends where the counter moves, so that how seldom it is written (every 20 to
    100 ms on a GPU) is no error; what else ran on the board or in the package meanwhile is in it.
    counter: default `energy_counter(device)`; where there is none, why not is returned. The
    conditions hold the mean power in W. Raises ValueError for a window that is not above 0 or none.
    """
    if seconds <= 0 or windows < 1:
        raise ValueError("energy needs windows of more than 0 seconds, and at least one")
    meter = energy_counter(device) if counter is None else counter
    if isinstance(meter, Unavailable):
        return meter
    sync = clocks.synchronizer(device)
    clocks.warm_up((fn,), 2, sync)
    inner = max(1, round(_BATCH / max(clocks.seconds(fn, sync, clock), 1e-9)))
    edge, samples, spent = None, [], [0.0, 0.0]
    for index in range(-1, windows):  # the first finds an edge of the counter
        least = 0.0 if index < 0 else seconds
        found = _window(fn, inner, sync, meter, least, _PATIENCE * seconds, clock, edge)
        if found is None:
            return Unavailable(f"{meter.name} stood still for {_PATIENCE * seconds:g} s")
        calls, edge, took, joules = found
        if index >= 0:
            samples.append(joules / calls)
            spent = [spent[0] + joules, spent[1] + took]
    how = {"counter": meter.name, "window": seconds, "inner": inner, "device": str(device),
           "power": spent[0] / spent[1], **(conditions or {})}  # fmt: skip
    return Measurement.from_samples("energy of a call", samples, "J", how, provenance(device))


def energy_counter(device: str = "cpu") -> EnergyCounter | Unavailable:
    """The energy counter of `device`: NVML's for CUDA, RAPL's for a CPU."""
    where = torch.device(device)
    if where.type == "cuda":
        return nvml(where)
    if where.type == "cpu":
        return rapl()
    return Unavailable("macOS tells the power of its GPU to administrators alone (powermetrics)")


class Rapl:
    """The sum of RAPL zones under /sys/class/powercap: packages, and memory where it has its own.

    Each zone counts microjoules and starts again from 0 when it reaches `max_energy_range_uj`. A
    reading below the last one is taken as one such return, so the zones must be read more often
    than they come around: at 300 W a range of 262 kJ lasts 14 minutes.
    """

    def __init__(self, zones: Iterable[Path]) -> None:
        self._zones = tuple(zones)
        self._ranges = [_number(zone / "max_energy_range_uj") for zone in self._zones]
        self._last = [_number(zone / "energy_uj") for zone in self._zones]
        self._total = 0
        names = ", ".join((zone / "name").read_text().strip() for zone in self._zones)
        self.name = f"RAPL ({names})"

    def joules(self) -> float:
        """Joules since this object was made."""
        for index, zone in enumerate(self._zones):
            now = _number(zone / "energy_uj")
            gone = now - self._last[index]
            self._total += gone if gone >= 0 else gone + self._ranges[index]
            self._last[index] = now
        return self._total / 1e6


def rapl(root: Path = _POWERCAP) -> Rapl | Unavailable:
    """The RAPL counter of this machine's packages and their memory; why not, where there is none.

    Zones of other kinds are left out: cores are part of a package, and "psys" counts all again.
    Source: Linux, Documentation/power/powercap. AMD's processors appear under the same names.
    """
    zones = []
    for zone in sorted(root.glob("intel-rapl:*")):
        level = re.fullmatch(r"intel-rapl:\d+(:\d+)?", zone.name)
        kind = _text(zone / "name")
        if level and (kind == "dram" if level[1] else kind.startswith("package")):
            zones.append(zone)
    if not zones:
        return Unavailable(
            "this system shows no RAPL zones in /sys/class/powercap: a virtual machine, a "
            "processor without them, or no Linux"
        )
    try:
        return Rapl(zones)
    except PermissionError:
        return Unavailable(
            "the processor's energy counters are for administrators alone (since Linux 5.10, "
            "CVE-2020-8694): sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj opens them "
            "until the next start"
        )
    except (OSError, ValueError) as fault:
        return Unavailable(f"a RAPL counter cannot be read ({type(fault).__name__})")


class Nvml:
    """The total energy of one GPU's board, counted by the driver in millijoules since it loaded."""

    def __init__(self, library, handle) -> None:
        self._library, self._handle = library, handle
        self.name = "NVML total energy"

    def joules(self) -> float:
        """Joules since the driver was loaded."""
        return self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1e3


def nvml(device: torch.device | str = "cuda", library=None) -> Nvml | Unavailable:
    """NVML's counter of the board that torch calls `device`; why not, where there is none.

    The board is found by its UUID, since NVML does not number boards as torch does. Volta or newer.
    Source: NVML API reference, nvmlDeviceGetTotalEnergyConsumption. library: default `pynvml`.
    """
    try:
        library = library or importlib.import_module("pynvml")
    except ImportError:
        return Unavailable("the package nvidia-ml-py is not installed: pip install nvidia-ml-py")
    try:
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        library.nvmlInit()
        named = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        meter = Nvml(library, library.nvmlDeviceGetHandleByUUID(named))
        meter.joules()
    except library.NVMLError as fault:
        return Unavailable(f"NVML does not tell this board's energy ({fault})")
    except (AttributeError, RuntimeError, AssertionError) as fault:
        return Unavailable(f"torch does not tell which board this is ({fault})")
    return meter


def _window(fn, inner, sync, meter, least, patience, clock, edge):
    """Calls until the counter moves after `least` seconds: (calls, edge, seconds, joules).

    edge  (time, joules) at which the counter moved last; None: now. None when it stands still.
    """
    begun, first = edge or (clock(), meter.joules())
    calls, before = 0, first
    while True:
        for _ in range(inner):
            fn()
        sync()
        calls += inner
        joules, now = meter.joules(), clock()
        moved, before = joules > before, joules
        if moved and now - begun >= least:
            return calls, (now, joules), now - begun, joules - first
        if now - begun > least + patience:
            return None


def _number(file: Path) -> int:
    return int(file.read_text())


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
