"""Counters: the FLOPs a call asks for and the memory the process holds. No clock."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

_ATEN = torch.ops.aten


@dataclass(frozen=True)
class Unavailable:
    """What a meter returns where it cannot read. False in a condition; says why as text."""

    reason: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"not available here, because {self.reason}"


@dataclass(frozen=True)
class FlopCount:
    """FLOPs of one call: `total`, and `by_op` {torch operation: FLOPs}.

    uncounted  the operations that ran and have no formula, in alphabetical order: elementwise,
               copies, norms, look-ups. A matrix product among them would mean that `total` is too
               low.
    """

    total: int
    by_op: Mapping[str, int]
    uncounted: tuple[str, ...]


def flops(fn: Callable[[], object]) -> FlopCount:
    """The FLOPs of the matrix products and attention of one call of fn, from their shapes.

    A multiply and an add count as 2. Attention counts the **full** square, 2·B·H·S_q·S_k·(D + D_v),
    causal or not: compare with `counts.step(..., causal_half=False)`. Elementwise work, norms and
    softmax are not counted. Works where torch's own counter (2.13) counts 0: attention on a CPU,
    matrix times vector, products with int8 and int4 weights or weights in oneDNN's layout.
    """
    with _Seen() as seen, FlopCounterMode(display=False, custom_mapping=_FORMULAS) as counter:
        fn()
    by_op = {str(op): int(n) for op, n in counter.get_flop_counts().get("Global", {}).items()}
    known = {*counter.flop_registry}
    uncounted = sorted(str(op) for op in seen.packets if op not in known)
    return FlopCount(int(counter.get_total_flops()), by_op, tuple(uncounted))


@dataclass(frozen=True)
class Memory:
    """Bytes now: of the process (resident now, and at its peak) and of the device's allocator
    (in tensors, reserved from the driver, in tensors at the peak). Each may be `Unavailable`.
    """

    resident: int | Unavailable
    peak_resident: int | Unavailable
    allocated: int | Unavailable
    reserved: int | Unavailable
    peak_allocated: int | Unavailable


def memory(device: str | torch.device = "cpu") -> Memory:
    """What the process and torch's allocator on `device` hold now, in bytes."""
    where = torch.device(device)
    resident, peak = psutil.Process().memory_info().rss, _peak_resident()
    if where.type == "cuda":
        return Memory(
            resident,
            peak,
            torch.cuda.memory_allocated(where),
            torch.cuda.memory_reserved(where),
            torch.cuda.max_memory_allocated(where),
        )
    if where.type == "mps":
        no_peak = Unavailable("torch keeps no peak of its MPS allocator")
        allocated, driver = torch.mps.current_allocated_memory, torch.mps.driver_allocated_memory
        return Memory(resident, peak, allocated(), driver(), no_peak)
    none = Unavailable("torch keeps no account of CPU memory: read the resident memory instead")
    return Memory(resident, peak, none, none, none)


def _peak_resident() -> int | Unavailable:
    try:
        import resource
    except ImportError:
        return Unavailable("this system has no getrusage")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = peak if platform.system() == "Darwin" else peak * 1024  # Linux counts in KiB
    return max(peak, psutil.Process().memory_info().rss)  # Linux updates the peak now and then


class _Seen(TorchDispatchMode):
    """Notes every operation that is executed. Entered before the counter, so it sees what the
    counter executes, not what the counter takes apart.
    """

    def __init__(self) -> None:
        super().__init__()
        self.packets: set = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.packets.add(getattr(func, "_overloadpacket", func))
        return func(*args, **(kwargs or {}))


def _attention(query, key, value, *args, out_shape=None, **kwargs) -> int:
    """2·B·H·S_q·S_k·(D + D_v), of shapes query (B, H, S_q, D), value (B, H_kv, S_k, D_v)."""
    batch, heads, rows, depth = query
    return 2 * batch * heads * rows * value[-2] * (depth + value[-1])


def _matrix_vector(matrix, vector, *args, out_shape=None, **kwargs) -> int:
    """2·m·k, of shapes matrix (m, k), vector (k,)."""
    return 2 * matrix[0] * matrix[1]


def _add_matrix_vector(added, matrix, vector, *args, out_shape=None, **kwargs) -> int:
    return 2 * matrix[0] * matrix[1]


def _dot(left, right, *args, out_shape=None, **kwargs) -> int:
    """2·k, of two vectors (k,)."""
    return 2 * left[0]


def _product(left, right, *args, out_shape=None, **kwargs) -> int:
    """2·m·n·k, of left (…, k), m rows, and an output (…, n); whatever layout the weight is in."""
    return 2 * math.prod(left) * out_shape[-1]


_NAMED = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_fused_attention_overrideable": _attention,
    "mv": _matrix_vector,
    "addmv": _add_matrix_vector,
    "dot": _dot,
    "vdot": _dot,
    "_int_mm": _product,
    "_weight_int8pack_mm": _product,
    "_weight_int4pack_mm": _product,
    "_weight_int4pack_mm_for_cpu": _product,
    "_weight_int4pack_mm_with_scales_and_zeros": _product,
}
_FORMULAS = {getattr(_ATEN, name): fn for name, fn in _NAMED.items() if hasattr(_ATEN, name)}
if hasattr(torch.ops.mkldnn, "_linear_pointwise"):  # a weight in oneDNN's blocked layout
    _FORMULAS[torch.ops.mkldnn._linear_pointwise] = _product
