"""What a measurement ran on: the facts that let somebody else judge or repeat it.

Every fact is read from the system, and "unknown" stands where the system does not tell. No host
name, user name or path is ever read into a record: records are published.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import psutil
import torch

UNKNOWN = "unknown"
_CACHES = Path("/sys/devices/system/cpu")
_SIZES = {"K": 2**10, "M": 2**20, "G": 2**30}


def machine(device: str = "cpu") -> dict:
    """The machine as plain JSON values: CPU model, cores this process may use, threads torch uses,
    memory (byte), last-level cache (byte), OS, Python, torch and its build; for a `device` that
    is no CPU also its name, driver and memory (byte).

    A fact the system does not tell is the string "unknown". Sources: /proc/cpuinfo, /sys and the
    control group on Linux, sysctl on macOS, torch for the accelerator.
    """
    facts = dict(_fixed())
    facts["threads"] = torch.get_num_threads()
    facts.update(_accelerator(torch.device(device)))
    return facts


def provenance(device: str = "cpu") -> dict:
    """`machine(device)` with the date (ISO 8601, UTC), the load (mean number of threads that
    wanted to run in the last minute), the version of inferlab and, where it runs from a git
    checkout, the short commit, marked "-dirty" when tracked files were changed.
    """
    facts = machine(device)
    facts["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    facts["load"] = os.getloadavg()[0] if hasattr(os, "getloadavg") else UNKNOWN
    facts["inferlab"] = _version()
    facts["commit"] = commit()
    return facts


def commit(file: Path | None = None) -> str:
    """The short git commit the package (or another file's checkout) is at, "-dirty" appended
    where tracked files differ; "unknown" for an installed package, and where git is missing.
    """
    file = file or Path(__file__).resolve()
    if not _git(file.parent, "ls-files", "--error-unmatch", file.name):
        return UNKNOWN  # installed, perhaps inside somebody else's repository
    short = _git(file.parent, "rev-parse", "--short", "HEAD")
    changed = _git(file.parent, "status", "--porcelain", "--untracked-files=no")
    if not short or changed is None:
        return UNKNOWN
    return short + ("-dirty" if changed else "")


def last_level_cache(root: Path = _CACHES) -> int | None:
    """Bytes of last-level cache over the cores this process may use, every distinct cache of the
    highest level added once; None where the system does not tell.

    A virtual machine may be told less than the processor has, and macOS tells nothing of Apple's
    system-level cache: a working set also needs a floor (`ceilings.working_set`).
    """
    if platform.system() == "Darwin" and root == _CACHES:
        keys = ("hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize")
        sizes = (_sysctl(key) for key in keys)
        return next((int(size) for size in sizes if size.isdigit() and int(size) > 0), None)
    found: dict[int, dict[str, int]] = {}
    for cpu in _usable_cpus():
        for index in sorted(root.glob(f"cpu{cpu}/cache/index*")):
            size = re.fullmatch(r"(\d+)([KMG])", _read(index / "size"))
            level = _read(index / "level")
            if size is None or not level.isdigit() or _read(index / "type") == "Instruction":
                continue
            shared = _read(index / "shared_cpu_list") or str(cpu)
            found.setdefault(int(level), {})[shared] = int(size[1]) * _SIZES[size[2]]
    return sum(found[max(found)].values()) if found else None


def cores() -> int:
    """Cores this process may use: its affinity mask, and the quota of its control group (rounded
    up) where that is smaller. At least 1.
    """
    quota = _quota()
    usable = len(_usable_cpus())
    return max(1, usable if quota is None else min(usable, math.ceil(quota)))


def memory() -> int:
    """Bytes of main memory, or of the control group's limit where that is smaller."""
    total = psutil.virtual_memory().total
    limits = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
    texts = [_read(Path(limit)) for limit in limits]
    return min([total] + [int(text) for text in texts if text.isdigit()])


@functools.cache
def _fixed() -> dict:
    """The facts that do not change while the process lives."""
    return {
        "cpu": cpu_model(),
        "cores": cores(),
        "memory": memory(),
        "last_level_cache": last_level_cache() or UNKNOWN,
        "os": _system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_build": _torch_build(),
    }


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as it gives it; on Arm under Linux, which gives none, its implementer
    and part numbers; else "unknown".
    """
    if platform.system() == "Darwin":
        return _sysctl("machdep.cpu.brand_string") or UNKNOWN
    text = _read(cpuinfo)
    name = re.search(r"^model name\s*:\s*(\S.*)$", text, re.MULTILINE)
    if name:
        return name[1].strip()
    maker = re.search(r"^CPU implementer\s*:\s*(\S+)", text, re.MULTILINE)
    part = re.search(r"^CPU part\s*:\s*(\S+)", text, re.MULTILINE)
    return f"Arm implementer {maker[1]} part {part[1]}" if maker and part else UNKNOWN


def _system() -> str:
    """System, its version in numbers alone (a release name may tell whose machine it is), and
    architecture: 'Linux 6.8.0 x86_64'.
    """
    number = re.match(r"[\d.]*\d", platform.release())
    version = number[0] if number else UNKNOWN
    return f"{platform.system()} {version} {platform.machine()}"


def _torch_build() -> str:
    """What torch was built for: CUDA or ROCm with its version, or CPU, and the CPU instructions."""
    if torch.version.cuda:
        built = f"CUDA {torch.version.cuda}"
    elif torch.version.hip:
        built = f"ROCm {torch.version.hip}"
    else:
        built = "CPU"
    return f"{built}, {torch.backends.cpu.get_cpu_capability()}"


def _accelerator(device: torch.device) -> dict:
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return {
            "accelerator": properties.name,
            "accelerator_memory": properties.total_memory,
            "driver": _gpu_driver(),
        }
    if device.type == "mps":
        return {
            "accelerator": f"GPU of {_fixed()['cpu']}",
            "accelerator_memory": torch.mps.recommended_max_memory(),
            "driver": f"macOS {platform.mac_ver()[0] or UNKNOWN}",
        }
    return {}


def _gpu_driver() -> str:
    if torch.version.hip:
        return _read(Path("/sys/module/amdgpu/version")) or UNKNOWN
    text = _read(Path("/proc/driver/nvidia/version"))
    number = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    if number:
        return number[1]
    query = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    lines = (_run(query) or "").split()
    return lines[0] if lines else UNKNOWN


def _version() -> str:
    try:
        return metadata.version("inferlab")
    except metadata.PackageNotFoundError:
        return UNKNOWN


def _quota() -> float | None:
    """Cores' worth of time the control group (version 2, else 1) grants; None without a limit."""
    folder = Path("/sys/fs/cgroup")
    words = _read(folder / "cpu.max").split() or [
        _read(folder / "cpu" / "cpu.cfs_quota_us"), _read(folder / "cpu" / "cpu.cfs_period_us"),
    ]  # fmt: skip
    if len(words) == 2 and all(word.isdigit() and int(word) > 0 for word in words):
        return int(words[0]) / int(words[1])
    return None


def _usable_cpus() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _sysctl(key: str) -> str:
    return _run(("sysctl", "-n", key)) or ""


def _git(folder: Path, *words: str) -> str | None:
    return _run(("git", "-C", str(folder), *words))


def _run(command: tuple[str, ...]) -> str | None:
    """Standard output of a command, stripped; None when it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
