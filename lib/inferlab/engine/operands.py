"""Weights as the kernels take them: what is read together is stored together.

q, k and v are rows of one matrix, gate and up of another, so a step makes four products a layer
instead of seven. A name of the checkpoint still finds its tensor: `weights["blk.0.attn_k.weight"]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from inferlab.engine import kernels

_STACKS = {"attn_qkv": ("attn_q", "attn_k", "attn_v"), "ffn_gate_up": ("ffn_gate", "ffn_up")}
_SINGLE = ("attn_output", "ffn_down")


class Layer(NamedTuple):
    """What one layer reads, in the order it is read."""

    attn_norm: Tensor
    attn_qkv: kernels.Linear
    attn_q_norm: Tensor | None
    attn_k_norm: Tensor | None
    attn_output: kernels.Linear
    ffn_norm: Tensor
    ffn_gate_up: kernels.Linear
    ffn_down: kernels.Linear


class Weights(Mapping[str, Tensor]):
    """The tensors of a checkpoint by GGUF name, held in the layout the kernels read.

    `linears` has one `kernels.Linear` per product; `tensors` the rest (norms, the embedding).
    Reading a name gives the plain tensor: a view where the storage is plain, a new tensor where
    it is packed. Tensors are taken out of `source` as they are stored, so that loading never
    holds two copies of a model.
    """

    def __init__(self, source: dict[str, Tensor], n_layers: int, table: kernels.Table):
        self._kinds = set(table["linear"].values())
        self._parts: dict[str, tuple[str, int, int]] = {}
        self.linears: dict[str, kernels.Linear] = {}
        for i in range(n_layers):
            for stack, parts in _STACKS.items():
                self._hold(source, f"blk.{i}.{stack}", [f"blk.{i}.{p}" for p in parts])
            for name in _SINGLE:
                self._hold(source, f"blk.{i}.{name}", [f"blk.{i}.{name}"])
        if "output.weight" in source:
            self._hold(source, "output", ["output"])
        else:  # a tied head reads the embedding; packed, it is a second copy beside the look-up's
            self.linears["output"] = kernels.Linear(source["token_embd.weight"], None, self._kinds)
        self.tensors: dict[str, Tensor] = dict(source)
        source.clear()
        self.layers = [self._layer(f"blk.{i}.") for i in range(n_layers)]

    def _layer(self, name: str) -> Layer:
        def find(field: str):
            return self.linears.get(name + field) or self.tensors.get(f"{name}{field}.weight")

        return Layer(*map(find, Layer._fields))

    def _hold(self, source: dict[str, Tensor], stack: str, parts: list[str]) -> None:
        weights = [source.pop(f"{p}.weight") for p in parts]
        biases = [source.pop(f"{p}.bias", None) for p in parts]
        if any((b is None) != (biases[0] is None) for b in biases):
            raise ValueError(f"{stack}: some of {parts} have a bias and some have none")
        row = 0
        for part, weight in zip(parts, weights, strict=True):
            self._parts[part] = (stack, row, row + weight.shape[0])
            row += weight.shape[0]
        whole = weights[0] if len(weights) == 1 else torch.cat(weights)
        bias = None if biases[0] is None else torch.cat(biases)
        self.linears[stack] = kernels.Linear(whole, bias, self._kinds)

    def __getitem__(self, name: str) -> Tensor:
        if name in self.tensors:
            return self.tensors[name]
        part, _, kind = name.rpartition(".")
        stack, start, stop = self._parts[part]
        held = self.linears[stack]
        whole = held.weight if kind == "weight" else held.bias
        if whole is None or kind not in ("weight", "bias"):
            raise KeyError(name)
        return whole[start:stop]

    def __iter__(self) -> Iterator[str]:
        yield from self.tensors
        for part, (stack, _, _) in self._parts.items():
            yield f"{part}.weight"
            if self.linears[stack].bias is not None:
                yield f"{part}.bias"

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def nbytes(self) -> int:
        """Bytes held, among them the packed copy of a tied head."""
        held = {id(t): t for t in self.tensors.values()}
        for linear in self.linears.values():
            held |= {id(t): t for t in (linear.plain, linear.packed, linear.bias) if t is not None}
        return sum(t.numel() * t.element_size() for t in held.values())
