"""Statements about inference that a count settles: what they say, what is counted, how far off.

Whatever can be held or run is counted on what is held or run: tensors of a cache, operations of a
pass, products a kernel makes. The rest is arithmetic on published shapes and data sheets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inferlab.engine.kvcache import KVCache
from inferlab.lab.experiments import bytes as moved
from inferlab.lab.experiments.flops import skeleton
from inferlab.lab.views import Table, table
from inferlab.theory import counts, hardware, shapes
from inferlab.theory.shapes import ModelShape
from inferlab.theory.units import bytes_per_weight, si


@dataclass(frozen=True)
class Count:
    """One statement in one case: what it `said` and what was `counted`, in the same unit."""

    case: str
    said: float
    counted: float
    unit: str = "B"

    @property
    def off(self) -> float:
        """said ÷ counted: 2 where the statement says twice as much as there is."""
        return self.said / self.counted


def show(found: Sequence[Count], case: str, said: str, counted: str, caption: str = "") -> Table:
    """The counts as a table; case, said and counted head their columns."""
    rows = [[c.case, si(c.said, c.unit), si(c.counted, c.unit), f"{c.off:.3g}"] for c in found]
    return table([case, said, counted, "said ÷ counted"], rows, caption)


def furthest(found: Sequence[Count]) -> Count:
    """The count that the statement misses by the largest factor, in whichever direction."""
    return max(found, key=lambda c: abs(math.log(c.off)))


def twice_the_weights(names: Sequence[str], context: int = 64) -> list[Count]:
    """Bytes of weights of one decode step: said 2N·b, counted as its operations take them."""
    found = []
    for name in names:
        model = skeleton(name)
        taken = moved.watched(model, context).weights
        found.append(Count(name, 2 * moved.weights(model), taken))
    return found


def resident_is_read(names: Sequence[str], experts: Sequence[str] = ()) -> list[Count]:
    """Bytes of weights of one decode step: said all that are held, counted as they are taken.

    experts  shapes that the engine does not run; theirs are counted by formula
    """
    found = [Count(c.case, c.said / 2, c.counted) for c in twice_the_weights(names)]
    for name in experts:
        shape = shapes.get(name)
        read = counts.step(shape, [counts.Sequence(1)]).weight_bytes
        found.append(Count(name, shape.params * bytes_per_weight("bf16"), read))
    return found


# --------------------------------------------------------------------------- the size of a cache

CACHE_RULES: dict[str, Callable[[ModelShape], float]] = {
    "query heads": lambda s: 2 * s.n_layers * s.n_heads * s.head_dim,
    "K only": lambda s: s.n_layers * s.n_kv_heads * s.head_dim,
    "hidden ÷ heads as head_dim": lambda s: (
        2 * s.n_layers * s.n_kv_heads * (s.d_model // s.n_heads)
    ),
    "2 · latent": lambda s: 2 * s.n_layers * (s.kv_lora_rank + s.qk_rope_dim),
}
"""Elements that one token leaves in the cache, by rules that are wrong for some shapes."""


def cache_held(shape: ModelShape, tokens: int = 16) -> float:
    """Elements per token in the tensors of a real cache of this shape (no memory is taken)."""
    cache = KVCache(shape, 1, tokens, torch.bfloat16, "meta")
    return cache.nbytes / 2 / tokens


def cache_rule(rule: str, names: Sequence[str], dtype: str = "bf16") -> list[Count]:
    """KV bytes per token: said by a rule of `CACHE_RULES`, counted in the tensors of a cache.

    MLA is not in the engine: its count is L·(r_kv + d_r), published for DeepSeek-V3 as 70,272 B.
    """
    found, width = [], bytes_per_weight(dtype)
    for name in names:
        shape = shapes.get(name)
        held = shape.kv_per_token if shape.kv_lora_rank else cache_held(shape)
        found.append(Count(name, CACHE_RULES[rule](shape) * width, held * width))
    return found


# ------------------------------------------------------------------------- what a kernel computes

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool], Tensor]


def pairs_computed(
    attention: Attention, tokens: int, stride: int = 16, device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> list[int]:  # fmt: skip
    """Keys that a causal attention kernel multiplies, per query: (T,) counts, at most T each.

    A value that is not a number spoils every sum it is part of, even with a weight of 0. So one
    value is replaced by NaN, and the queries whose result is spoiled are those the kernel
    multiplied it for, also where the mask then threw the product away. Done for one key in
    `stride`, which stands for its block: exact where the kernel's blocks are multiples of it.
    No clock is read.
    """
    if tokens % stride:
        raise ValueError(f"{tokens} tokens are no multiple of stride={stride}")
    probes, width = tokens // stride, 16
    source = torch.Generator(device=device).manual_seed(0)
    q, k, v = (
        torch.randn(1, 1, tokens, width, generator=source, device=device).to(dtype)
        for _ in range(3)
    )
    touched = torch.zeros(tokens, dtype=torch.long, device=device)
    for block in range(probes):
        spoiled = v.clone()
        spoiled[:, :, block * stride] = torch.nan
        touched += attention(q, k, spoiled, None, True).isnan().any(-1)[0, 0]
    return (touched * stride).tolist()


def causal_half(
    attention: Attention, lengths: Sequence[int], device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> list[Count]:  # fmt: skip
    """Pairs of query and key: said T(T + 1)/2, counted as the kernel multiplies them."""
    found = []
    for n in lengths:
        computed = sum(pairs_computed(attention, n, max(16, n // 64), device, dtype))
        found.append(Count(f"{n:,} tokens", n * (n + 1) / 2, computed, "pairs"))
    return found


# ------------------------------------------------------------------------------------- experts


def experts_read(name: str, batches: Sequence[int]) -> list[Count]:
    """Weights read in a decode step: said the active ones, counted as the batch is expected to.

    Both without the embedding, of which rows are looked up. `counted` is `counts.step`'s, uniform
    and independent routing; `experts_drawn` draws it.
    """
    shape = shapes.get(name)
    read = {b: counts.step(shape, [counts.Sequence(1)] * b).weight_bytes for b in (1, *batches)}
    return [Count(f"{name}, batch {b}", read[1], read[b]) for b in batches]


def experts_drawn(
    n_experts: int, n_active: int, tokens: int, draws: int = 400, seed: int = 0
) -> float:
    """Distinct experts that `tokens` tokens use, each sent to `n_active` at random: mean of draws.

    Raises ValueError where n_active is not between 1 and n_experts.
    """
    if not 1 <= n_active <= n_experts:
        raise ValueError(f"{n_active} of {n_experts} experts for a token makes no sense")
    source = torch.Generator().manual_seed(seed)
    scores = torch.rand(draws, tokens, n_experts, generator=source)
    chosen = scores.topk(n_active, -1).indices.flatten(1)  # (draws, tokens · k)
    used = torch.zeros(draws, n_experts).scatter_(1, chosen, 1.0)
    return float(used.sum(1).mean())


# --------------------------------------------------------------------------------------- units


class _Tally:
    """A number that notes what is done with it."""

    multiplied = added = 0

    def __mul__(self, other: _Tally) -> _Tally:
        _Tally.multiplied += 1
        return self

    def __add__(self, other: _Tally) -> _Tally:
        _Tally.added += 1
        return self


def operations_of_a_product(m: int, n: int, k: int) -> tuple[int, int]:
    """Multiplications and additions of (m, k)·(k, n), by doing it with numbers that count."""
    _Tally.multiplied = _Tally.added = 0
    one = _Tally()
    for _ in range(m * n):
        total = one * one
        for _ in range(k - 1):
            total = total + one * one
    return _Tally.multiplied, _Tally.added


def sold_memory(cards: Sequence[tuple[str, float]]) -> list[Count]:
    """Memory of accelerators: said the gigabytes in the name, counted as the driver reports."""
    return [Count(id, gigabytes * 1e9, hardware.get(id).memory) for id, gigabytes in cards]


SPARSE_PEAKS = {
    "a100-80gb-sxm": 6.24e14, "h100-sxm": 1.979e15, "l4": 2.42e14, "l40s": 7.33e14
}  # fmt: skip
"""16-bit FLOP/s with sparsity, as NVIDIA's data sheets print them, with a footnote that says so.
The dense ones are in data/hardware.csv."""


def sparse_peaks() -> list[Count]:
    """16-bit peaks: said the sparse figure of the data sheet, counted the dense one."""
    return [
        Count(id, peak, hardware.get(id).peak_flops("fp16"), "FLOP/s")
        for id, peak in SPARSE_PEAKS.items()
    ]


def prunable(weights: Mapping[str, Tensor]) -> float:
    """Share of weights in aligned groups of four, of which two or more are zero already.

    A sparse peak needs that of every group (2:4 sparsity).
    """
    fitting = groups = 0
    for weight in weights.values():
        if weight.dim() == 2 and weight.shape[1] % 4 == 0:
            zeros = (weight.reshape(-1, 4) == 0).sum(1)
            fitting += int((zeros >= 2).sum())
            groups += len(zeros)
    return fitting / groups
