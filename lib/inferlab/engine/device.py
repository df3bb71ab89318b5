"""Where a model runs and in which data type: the choice, and the reason when a wish cannot be met.

What the machine offers is read once, by `facts()`, into a plain record; the decisions are pure
functions of that record, so that every branch can be tested on any machine.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The data types the engine computes in, by their short names."""

_SPELLINGS = {
    "float32": "fp32", "f32": "fp32", "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16", "f16": "fp16", "half": "fp16",
}  # fmt: skip


@dataclass(frozen=True)
class Gpu:
    """One CUDA device: its name and its compute capability (major, minor)."""

    name: str
    capability: tuple[int, int]

    @property
    def ampere(self) -> bool:
        """Compute capability 8.0 or newer: bf16 is native, and FlashAttention 2 runs.

        Sources: CUDA C++ programming guide, "Compute Capabilities"; README of Dao-AILab's
        flash-attention ("Ampere, Ada, or Hopper GPUs").
        """
        return self.capability >= (8, 0)


@dataclass(frozen=True)
class Facts:
    """What decides between devices and data types on this machine.

    gpus       the CUDA devices in torch's order (ROCm devices too: torch calls them CUDA)
    mps        Apple's GPU can be used;  mps_bf16: and its Metal has bfloat16 (macOS 14)
    cpu_bf16   the CPU multiplies bf16 in hardware
    built_for  "CUDA", "ROCm" or "CPU": what this torch was built for, to explain an absence
    """

    gpus: tuple[Gpu, ...] = ()
    mps: bool = False
    mps_bf16: bool = False
    cpu_bf16: bool = False
    built_for: str = "CPU"


def facts() -> Facts:
    """The facts of this machine, as torch and the operating system tell them."""
    gpus = ()
    if torch.cuda.is_available():
        numbers = range(torch.cuda.device_count())
        gpus = tuple(
            Gpu(torch.cuda.get_device_name(i), torch.cuda.get_device_capability(i)) for i in numbers
        )
    mps = torch.backends.mps.is_available()
    return Facts(
        gpus=gpus,
        mps=mps,
        mps_bf16=mps and torch.backends.mps.is_macos_or_newer(14, 0),
        cpu_bf16=has_bf16(*_cpu_flags()),
        built_for="CUDA" if torch.version.cuda else "ROCm" if torch.version.hip else "CPU",
    )


def pick_device(device: str | torch.device = "auto", have: Facts | None = None) -> torch.device:
    """The device to load onto: "auto" is CUDA if there is one, else MPS, else the CPU.

    device  "auto", "cpu", "mps", "cuda", "cuda:1" or a torch.device. have: facts to decide by.
    Raises ValueError, saying why, for a device that is not here or a name that is none.
    """
    have = have or facts()
    if str(device) == "auto":
        return torch.device("cuda" if have.gpus else "mps" if have.mps else "cpu")
    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError):
        wanted = None
    if wanted is None or wanted.type not in ("cpu", "cuda", "mps"):
        raise ValueError(
            f"unknown device {str(device)!r}: the engine runs on 'cpu', 'cuda' (or 'cuda:1', ...) "
            "and 'mps'; 'auto' takes the best that is here"
        )
    if wanted.type == "cuda" and (wanted.index or 0) >= len(have.gpus):
        raise ValueError(f"{device!s} was asked for and {_no_cuda(have)}; {_instead(have)}")
    if wanted.type == "mps" and not have.mps:
        raise ValueError(
            "mps was asked for and is not here: it takes a Mac with Apple silicon and a torch "
            f"built for it; {_instead(have)}"
        )
    return wanted


def pick_dtype(
    dtype: str | torch.dtype, device: torch.device, have: Facts | None = None
) -> torch.dtype:
    """The data type to compute in on `device`. "auto" follows this rule:

    CPU   bf16 where the CPU multiplies bf16 in hardware (AVX512_BF16 or AMX on x86, the bf16
          extension on Arm under Linux), else fp32, because elsewhere torch emulates bf16.
    CUDA  bf16 from compute capability 8.0 on, below it fp16. What torch itself says of bf16 is not
          asked: it also says yes where bf16 is emulated (capability 7.5).
    MPS   fp16.

    Raises ValueError for an unknown name and for bf16 on a GPU without it.
    Source: CUDA C++ programming guide, "Compute Capabilities" (bfloat16 from 8.0).
    """
    have = have or facts()
    ampere = device.type == "cuda" and have.gpus[device.index or 0].ampere
    if dtype == "auto":
        if device.type == "cpu":
            return torch.bfloat16 if have.cpu_bf16 else torch.float32
        return torch.bfloat16 if ampere else torch.float16
    wanted = _named(dtype)
    if wanted is torch.bfloat16 and device.type == "cuda" and not ampere:
        gpu = have.gpus[device.index or 0]
        raise ValueError(
            f"bf16 was asked for on {gpu.name}, whose compute capability is "
            f"{gpu.capability[0]}.{gpu.capability[1]}: bf16 takes 8.0 or newer; "
            "pass dtype='fp16' (same size) or dtype='fp32'"
        )
    if wanted is torch.bfloat16 and device.type == "mps" and not have.mps_bf16:
        raise ValueError(
            "bf16 was asked for on mps, and it takes macOS 14 or newer: pass dtype='fp16' "
            "(same size) or dtype='fp32'"
        )
    return wanted


def short_name(dtype: torch.dtype) -> str:
    """'bf16' for torch.bfloat16: the name the theory and the tables use."""
    return {value: key for key, value in DTYPES.items()}[dtype]


def has_bf16(machine: str, flags: frozenset[str]) -> bool:
    """Whether a CPU of this architecture with these feature flags multiplies bf16 in hardware.

    Flags are Linux's names. macOS lists none, so a Mac's CPU counts as without.
    """
    if machine.lower() in ("aarch64", "arm64"):
        return "bf16" in flags
    return bool(flags & {"avx512_bf16", "amx_bf16"})


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on `device`.

    CPU: what the system calls available, or what is left of the container's limit if less.
    CUDA: free on the device plus what torch holds in reserve. MPS: the recommended maximum less
    what is allocated.
    """
    if device.type == "cuda":
        reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserve
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return min(psutil.virtual_memory().available, container_memory())


def container_memory(root: Path = Path("/sys/fs/cgroup")) -> float:
    """Bytes left under the memory limit of this container (cgroup v2), infinity without one."""
    try:
        limit = (root / "memory.max").read_text().strip()
        used = int((root / "memory.current").read_text())
        stat = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return float("inf")
    reclaimable = int(stat.get("inactive_file", 0))  # page cache the kernel gives back
    return float("inf") if limit == "max" else max(0, int(limit) - used + reclaimable)


def _cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, frozenset[str]]:
    """(architecture, feature flags) of this CPU, as Linux lists them; no flags elsewhere."""
    machine = platform.machine()
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return machine, frozenset()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return machine, frozenset(value.split())
    return machine, frozenset()


def _named(dtype: str | torch.dtype) -> torch.dtype:
    if isinstance(dtype, torch.dtype) and dtype in DTYPES.values():
        return dtype
    name = str(dtype).lower().removeprefix("torch.")
    name = _SPELLINGS.get(name, name)
    if name not in DTYPES:
        raise ValueError(
            f"unknown data type {str(dtype)!r}: the engine computes in {', '.join(DTYPES)}; "
            "'auto' takes the one that suits the device"
        )
    return DTYPES[name]


def _no_cuda(have: Facts) -> str:
    if have.gpus:
        listed = ", ".join(f"cuda:{i} ({gpu.name})" for i, gpu in enumerate(have.gpus))
        return f"this machine has only {listed}"
    if have.built_for == "CPU":
        return "this torch was built without CUDA (a CPU build)"
    return f"torch, built for {have.built_for}, finds no GPU or no driver"


def _instead(have: Facts) -> str:
    here = ["cuda"] * bool(have.gpus) + ["mps"] * have.mps + ["cpu"]
    return f"here are: {', '.join(here)}; device='auto' takes the best"
