"""Probes: callables that do a known number of bytes or FLOPs once, to run beside what is measured.

The rate of a probe, taken in the same minutes as a step, is the ceiling that step is held against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from inferlab.engine import kernels
from inferlab.engine.device import DTYPES, free_memory
from inferlab.lab import host
from inferlab.theory.units import si

READS = ("sum", "dot", "gemv")
"""The ways `read_probe` reads."""

_CACHES = 4  # a working set is at least this many last-level caches
_FLOOR = {"cpu": 2**28, "mps": 2**29, "cuda": 2**31}


@dataclass(frozen=True)
class Probe:
    """A callable that does a known amount of work once: `work` in `unit` (B read, or FLOP)."""

    name: str
    work: int
    unit: str
    run: Callable[[], object] = field(repr=False)
    conditions: Mapping = field(default_factory=dict)

    def __call__(self) -> object:
        return self.run()


def working_set(device: str = "cpu") -> int:
    """Bytes a bandwidth probe reads: at least four last-level caches, and at least 256 MiB on a
    CPU, 512 MiB on Apple's GPU; 1 GiB where the cache's size is not known. On a CUDA GPU 2 GiB, or
    an eighth of what is free, if that is less and still four caches.
    """
    where = torch.device(device)
    floor = _FLOOR[where.type]
    if where.type == "cuda":
        cache = torch.cuda.get_device_properties(where).L2_cache_size
        floor = min(floor, free_memory(where) // 8)
    else:
        cache = host.last_level_cache() or 2**30 // _CACHES
    return max(_CACHES * cache, floor)


def read_probe(device: str = "cpu", kind: str = "sum", nbytes: int | None = None) -> Probe:
    """A probe that reads `nbytes` of memory once (default: `working_set`) and writes next to none.

    kind  "sum"   one stream of fp32, added up
          "dot"   two streams of fp32, multiplied and added up
          "gemv"  one row times a matrix, 16-bit where the device multiplies it, by the kernel that
                  the engine takes for one row: the access pattern of decode
    Raises ValueError for an unknown kind, MemoryError where the buffer does not fit.
    """
    if kind not in READS:
        raise ValueError(f"unknown read probe {kind!r}: there are {', '.join(READS)}")
    where = torch.device(device)
    nbytes = (nbytes or working_set(device)) // 2**15 * 2**15
    _check_room(where, nbytes)
    # Real values: both 16-bit halves are numbers from 1 to 2, so nothing is denormal or zero.
    half = torch.bfloat16 if where.type == "cpu" else torch.float16
    pattern = (1 + torch.arange(2**14, device=where) / 2**14).to(half)
    halves = pattern.repeat(nbytes // 2**15)  # (nbytes / 2,)
    if kind == "gemv":
        run = _gemv(halves)
    else:
        wide = halves.view(torch.float32)  # (nbytes / 4,)
        left, right = wide.chunk(2)
        run = wide.sum if kind == "sum" else lambda: torch.dot(left, right)
    conditions = {"device": str(where), "kind": kind, "nbytes": nbytes}
    return Probe(f"read, {kind}", nbytes, "B", run, conditions)


def gemm_probe(
    dtype: str, m: int, n: int, k: int, device: str = "cpu", kernel: str = "plain"
) -> Probe:
    """A probe of one product (m, k)·(k, n): 2·m·n·k FLOP, on random values.

    kernel  the engine's twin of a linear layer: "plain" (W stored (n, k)), "packed" (oneDNN's
            layout, packed beforehand) or "native" (oneDNN off), where they exist here.
    Raises ValueError for a dtype or kernel this device does not have.
    """
    where, kind = torch.device(device), torch_dtype(dtype)
    if kernel not in kernels.candidates(where, kind)["linear"]:
        raise ValueError(
            f"there is no {kernel!r} product of {dtype} on {device}: "
            f"there are {kernels.candidates(where, kind)['linear']}"
        )
    source = torch.Generator(device=where).manual_seed(0)
    x = torch.randn(m, k, generator=source, device=where).to(kind)  # (m, k)
    w = torch.randn(n, k, generator=source, device=where).to(kind)  # (n, k)
    linear = kernels.Linear(w, None, {kernel})
    conditions = {"dtype": dtype, "m": m, "n": n, "k": k, "device": str(where), "kernel": kernel}
    name = f"product {m}×{k}×{n}, {dtype}, {kernel}"
    run = torch.inference_mode()(lambda: linear(x, kernel))
    return Probe(name, 2 * m * n * k, "FLOP", run, conditions)


def _gemv(halves: torch.Tensor) -> Callable[[], object]:
    """One row times the buffer as a matrix (n, 4096), by the engine's kernel for one row here."""
    narrow = halves.device.type != "cpu" or kernels.packs(halves.device, halves.dtype)
    matrix = halves if narrow else halves.view(torch.float32)
    kind = kernels.default(matrix.device, matrix.dtype)["linear"]["gemv"]
    linear = kernels.Linear(matrix.view(-1, 4096), None, {kind})
    x = torch.ones(1, 4096, dtype=matrix.dtype, device=matrix.device)  # (1, 4096)

    @torch.inference_mode()
    def run() -> object:
        with kernels.switches(kind):
            return linear(x, kind)

    return run


def _check_room(device: torch.device, nbytes: int) -> None:
    free = free_memory(device)
    if free < 2 * nbytes:
        raise MemoryError(
            f"a read probe of {si(nbytes, 'B')} needs twice that free, and {device} has "
            f"{si(free, 'B')}: close other programs, or pass nbytes (a smaller working set may "
            "measure the cache)"
        )


def torch_dtype(name: str) -> torch.dtype:
    """torch.bfloat16 for 'bf16'. Raises ValueError for what no product is measured in."""
    if name not in DTYPES:
        raise ValueError(
            f"no matrix product of {name!r} is measured: there are {', '.join(DTYPES)}"
        )
    return DTYPES[name]
