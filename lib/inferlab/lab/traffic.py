"""Bytes of weights and of the KV cache that a step's operations take as operands, by watching them.

Each operation that really runs is asked which memory it was handed: a weight whole, rows of a
table, a slice of the cache. That is the traffic a step asks for; what a cache of the processor
absorbs is not seen (`dram` sees it, where the processor counts). No clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from inferlab.engine.kvcache import KVCache
from inferlab.engine.model import Model

_LOOK_UPS = ("aten::embedding", "aten::index", "aten::index_select", "aten::gather")


@dataclass(frozen=True)
class Traffic:
    """Bytes handed to the operations of one call.

    weights   parameters read whole; the same weight twice counts twice
    rows      rows of a weight that were looked up
    kv_read, kv_written  of the cache
    """

    weights: int
    rows: int
    kv_read: int
    kv_written: int


def traffic(fn: Callable[[], object], model: Model, cache: KVCache | None = None) -> Traffic:
    """What one call of `fn` reads of the model's weights, and reads and writes of the cache."""
    kept = () if cache is None else (cache.k, cache.v)
    with _Watch(_held(model), kept) as watch:
        fn()
    return Traffic(watch.weights, watch.rows, watch.kv_read, watch.kv_written)


def _held(model: Model) -> list[Tensor]:
    """Every tensor the kernels read: products in each layout they are held in, norms, tables."""
    held = list(model.weights.tensors.values())
    for linear in model.weights.linears.values():
        held += [t for t in (linear.plain, linear.packed, linear.bias) if t is not None]
    return held


class _Watch(TorchDispatchMode):
    """Sums the operands of every operation by what memory they lie in; views move nothing."""

    def __init__(self, weights: Iterable[Tensor], cache: Iterable[Tensor]) -> None:
        super().__init__()
        self._weights, self._cache = set(map(_place, weights)), set(map(_place, cache))
        self.weights = self.rows = self.kv_read = self.kv_written = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            self._note(func, args, kwargs or {}, out)
        return out

    def _note(self, func, args: tuple, kwargs: dict, out: object) -> None:
        written = _written(func, args)
        for tensor in tree_iter((args, kwargs)):
            if not isinstance(tensor, Tensor):
                continue
            place, size = _place(tensor), tensor.numel() * tensor.element_size()
            if place in self._weights:
                if func._schema.name in _LOOK_UPS:
                    self.rows += out.numel() * out.element_size()
                else:
                    self.weights += size
            elif place in self._cache:
                if id(tensor) in written:
                    self.kv_written += size
                else:
                    self.kv_read += size


def _written(func, args: tuple) -> set[int]:
    """The operands that an operation writes into, as its schema says."""
    pairs = zip(func._schema.arguments, args, strict=False)
    return {id(arg) for said, arg in pairs if said.alias_info and said.alias_info.is_write}


def _place(tensor: Tensor) -> tuple[str, int]:
    """The memory a tensor lies in, on the meta device too; a tensor in oneDNN's layout has none
    that torch could name and stands for itself.
    """
    if tensor.layout != torch.strided:
        return "object", id(tensor)
    return "memory", tensor.untyped_storage()._cdata
