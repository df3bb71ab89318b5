"""Bytes that really moved between memory and processor, where the memory controller's counters can
be read: Intel's under Linux, by `perf_event_open`. They count the whole machine, neighbours too.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from inferlab.lab import clock as clocks
from inferlab.lab.clock import Clock
from inferlab.lab.counters import Unavailable
from inferlab.lab.records import Measurement, provenance

_DEVICES = Path("/sys/bus/event_source/devices")
_SYSCALL = {"x86_64": 298, "aarch64": 241}  # perf_event_open
# Names under which the kernel shows bytes read and written, in the order of preference: the
# channels of a server's controller, then the free-running counters of a client's.
_EVENTS = (("cas_count_read", "cas_count_write"), ("data_read", "data_write"))
_MIB = 2**20


@dataclass(frozen=True)
class Traffic:
    """Bytes per call read from memory and written to it, by the whole machine."""

    read: Measurement
    written: Measurement


def dram(
    fn: Callable[[], object],
    device: str = "cpu",
    seconds: float = 0.5,
    windows: int = 3,
    *,
    counter: MemoryCounter | Unavailable | None = None,
    conditions: Mapping | None = None,
    clock: Clock = time.perf_counter,
) -> Traffic | Unavailable:
    """Bytes of memory traffic per call of fn: one sample per window of at least `seconds` of calls.

    counter: default `memory_counter(device)`; where there is none, why not is returned. Raises
    ValueError for a window that is not above 0 or none.
    """
    if seconds <= 0 or windows < 1:
        raise ValueError("dram needs windows of more than 0 seconds, and at least one")
    meter = memory_counter(device) if counter is None else counter
    if isinstance(meter, Unavailable):
        return meter
    sync = clocks.synchronizer(device)
    clocks.warm_up((fn,), 2, sync)
    reads, writes = [], []
    with meter:
        for _ in range(windows):
            begun, calls, (read, written) = clock(), 0, meter.bytes()
            while clock() - begun < seconds:
                fn()
                calls += 1
            sync()
            more_read, more_written = meter.bytes()
            reads.append((more_read - read) / calls)
            writes.append((more_written - written) / calls)
    how = {"counter": meter.name, "window": seconds, "device": str(device), **(conditions or {})}
    here = provenance(device)
    return Traffic(
        Measurement.from_samples("bytes read from memory", reads, "B", how, here),
        Measurement.from_samples("bytes written to memory", writes, "B", how, here),
    )


class MemoryCounter:
    """Open counters of every memory controller; a context manager, since they are open files."""

    def __init__(self, name: str, reads, writes, fetch: Callable[[int], int]) -> None:
        self.name, self._both, self._fetch = name, (tuple(reads), tuple(writes)), fetch

    def bytes(self) -> tuple[float, float]:
        """Bytes read and bytes written since the counters were opened."""
        read, written = (
            sum(scale * self._fetch(handle) for handle, scale in side) for side in self._both
        )
        return read, written

    def __enter__(self) -> MemoryCounter:
        return self

    def __exit__(self, *_: object) -> None:
        for side in self._both:
            for handle, _ in side:
                os.close(handle)


def memory_counter(
    device: str = "cpu", root: Path = _DEVICES, opener: Callable[[int, int, int], int] | None = None
) -> MemoryCounter | Unavailable:
    """Counters of the memory traffic of `device`; why not, where there are none to be read.

    opener(type, config, cpu) -> file descriptor; default `perf_open`. Sources: Linux,
    perf_event_open(2), and the files `events`, `format`, `cpumask` of each counter under
    /sys/bus/event_source/devices.
    """
    if torch.device(device).type != "cpu":
        return Unavailable(
            "a GPU's memory counters are read by a profiler, outside the process: "
            "ncu --metrics dram__bytes_read.sum,dram__bytes_write.sum, where the driver lets users"
        )
    for names in _EVENTS:
        units = [u for u in sorted(root.glob("uncore_imc*")) if _event(u, names[0])]
        if units:
            break
    else:
        return Unavailable(
            "this system shows no counters of a memory controller (uncore_imc): a virtual machine, "
            "another maker's processor, or no Linux"
        )
    handles: list[list[tuple[int, float]]] = [[], []]
    try:
        for unit in units:
            for side, name in zip(handles, names, strict=True):
                for handle in _open(unit, name, opener or perf_open):
                    side.append(handle)
    except (OSError, ValueError) as fault:
        for handle, _ in (*handles[0], *handles[1]):
            os.close(handle)
        if isinstance(fault, PermissionError):
            return Unavailable(
                "the counters of the memory controllers are for administrators alone: "
                "sudo sysctl kernel.perf_event_paranoid=0 opens them until the next start"
            )
        return Unavailable(f"a counter of the memory controllers cannot be opened ({fault})")
    label = f"{len(units)} memory controllers, {names[0]} and {names[1]}"
    return MemoryCounter(label, *handles, _fetch)


def perf_open(kind: int, config: int, cpu: int) -> int:
    """File descriptor of a counter of the whole of `cpu`, counting from now on. Raises OSError."""
    number = _SYSCALL.get(platform.machine())
    if number is None or platform.system() != "Linux":
        raise OSError(0, "perf_event_open is known for Linux on x86_64 and aarch64")
    # struct perf_event_attr, first version: type, size, config, period, sample type, read format,
    # flags, wake-up, breakpoint type, config1
    attr = struct.pack("=IIQQQQQIIQ", kind, 64, config, 0, 0, 0, 0, 0, 0, 0)
    library = ctypes.CDLL(None, use_errno=True)
    handle = library.syscall(number, attr, -1, cpu, -1, 0)
    if handle < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return handle


def config(unit: Path, event: str) -> int:
    """The config word of an event such as "event=0x04,umask=0x03", by the unit's `format` files.

    Each says which bits a field takes, as in "config:8-15" or "config:0-7,32". Raises ValueError
    for a field outside the config word.
    """
    word = 0
    for part in event.split(","):
        name, _, text = part.strip().partition("=")
        value = int(text or "1", 0)
        place = (unit / "format" / name).read_text().strip()
        if not place.startswith("config:"):
            raise ValueError(f"{unit.name} keeps {name} in {place}: only config is written here")
        for span in place.removeprefix("config:").split(","):
            low, _, high = span.partition("-")
            width = int(high or low) - int(low) + 1
            word |= (value & ((1 << width) - 1)) << int(low)
            value >>= width
    return word


def _open(unit: Path, name: str, opener) -> Iterator[tuple[int, float]]:
    """(file descriptor, bytes per count) of one event of one controller, on each of its CPUs."""
    kind, word = int((unit / "type").read_text()), config(unit, _event(unit, name))
    counted_in = (unit / "events" / f"{name}.unit").read_text().strip()
    if counted_in != "MiB":
        raise ValueError(f"{unit.name} counts in {counted_in}, not in MiB")
    scale = float((unit / "events" / f"{name}.scale").read_text()) * _MIB
    for span in (unit / "cpumask").read_text().strip().split(","):
        low, _, high = span.partition("-")
        for cpu in range(int(low), int(high or low) + 1):
            yield opener(kind, word, cpu), scale


def _event(unit: Path, name: str) -> str:
    try:
        return (unit / "events" / name).read_text().strip()
    except OSError:
        return ""


def _fetch(handle: int) -> int:
    return struct.unpack("=Q", os.read(handle, 8))[0]
