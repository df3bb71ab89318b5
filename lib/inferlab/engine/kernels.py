"""The operations of a decoder block: for each a plain twin, which is the equation, and fast twins.

Letters, in the whole engine: B sequences, T new tokens of each, S tokens in the cache, D model
width, H query heads, K key/value heads, G = H/K query heads that share one K/V head, E head width.

Which twin runs is read from a *table*: `{"linear": {regime: name}, "attention": …, "norm": …}`.
The regime is the number of rows that one weight is used for, because the winner changes with it.
`lab.ceilings.tune` measures a table on this machine; without one `default` states the rule.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from inferlab.engine.linear import Linear as Linear
from inferlab.engine.linear import pack as pack
from inferlab.engine.linear import switches as switches
from inferlab.theory.shapes import ModelShape, RopeScaling

Table = dict[str, dict[str, str]]
REGIMES = ("gemv", "small", "gemm")


def regime(rows: int) -> str:
    """The kernel path of `rows` rows: one (gemv), up to 15 (small), 16 and more (gemm)."""
    return "gemv" if rows == 1 else "small" if rows < 16 else "gemm"


def packs(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether oneDNN can hold a weight of this dtype in its own blocked layout on this device."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype == torch.float32


def has_tiles() -> bool:
    """Whether this CPU multiplies bf16 in tiles (Intel's AMX)."""
    return torch.cpu._is_amx_tile_supported()


def candidates(device: torch.device, dtype: torch.dtype) -> dict[str, tuple[str, ...]]:
    """The twins that run here, plain first."""
    linear = ["plain"]
    if device.type == "cpu" and torch.backends.mkldnn.is_available():
        linear.append("native")
    if packs(device, dtype):
        linear.append("packed")
    return {
        "linear": tuple(linear),
        "attention": ("plain", "sdpa", "grouped"),
        "norm": ("plain", "fused", "row") if device.type == "cpu" else ("plain", "fused"),
    }


def default(device: torch.device, dtype: torch.dtype, copies: int = 2) -> Table:
    """The rule without a measurement.

    Linear: oneDNN's blocked layout where it exists, since it is read without the repacking that
    the plain layout pays in every call; else the plain product. One row of bf16 goes through
    torch's own product instead, whose calls start faster; it reads the plain layout, so the
    weights are held twice: copies=1 forbids that. Not so on a CPU with matrix tiles (AMX): on the
    one measured (Xeon, family 6, model 207) the blocked layout was as fast or faster for one row
    too. Attention: `grouped` for one new token, since it reads K and V once for all G query heads;
    `sdpa` for more. Norm: `fused`; on a CPU `row` for one row, where the operations are shorter
    than their launching.
    """
    linear = dict.fromkeys(REGIMES, "packed" if packs(device, dtype) else "plain")
    if linear["gemv"] == "packed" and dtype == torch.bfloat16 and copies > 1 and not has_tiles():
        linear["gemv"] = "native"
    return {
        "linear": linear,
        "attention": {"gemv": "grouped", "small": "sdpa", "gemm": "sdpa"},
        "norm": {
            "gemv": "row" if device.type == "cpu" else "fused", "small": "fused", "gemm": "fused"
        },
    }  # fmt: skip


def pick(table: Table | None, device: torch.device, dtype: torch.dtype) -> Table:
    """`table` completed by the rule and checked against what runs here.

    Raises ValueError for a twin that this device and dtype do not have.
    """
    picked, possible = default(device, dtype), candidates(device, dtype)
    for op, by_regime in (table or {}).items():
        if op not in picked:
            raise ValueError(f"the kernel table names {op!r}; operations are {sorted(picked)}")
        for where, name in by_regime.items():
            if where not in REGIMES or name not in possible[op]:
                raise ValueError(
                    f"the kernel table asks for {op} {name!r} in regime {where!r}; on "
                    f"{device.type} with {dtype} there are {possible[op]} in {REGIMES}"
                )
            picked[op][where] = name
    return picked


def layouts(table: Table) -> int:
    """In how many layouts this table wants the weights: 1, or 2 (plain and packed)."""
    kinds = set(table["linear"].values())
    return 2 if "packed" in kinds and len(kinds) > 1 else 1


class Path(NamedTuple):
    """The twins that one step runs: linear by name, since the weight is held for it."""

    linear: str
    attention: Callable[..., Tensor]
    norm: Callable[[Tensor, Tensor, float], Tensor]


def path(table: Table, rows: int, queries: int) -> Path:
    """What `table` says for `rows` rows in all and `queries` new tokens of a sequence."""
    kind, each = regime(rows), regime(queries)
    return Path(
        table["linear"][kind], ATTENTION[table["attention"][each]], NORM[table["norm"][kind]]
    )


# --------------------------------------------------------------------------------------- norm


def rms_norm_plain(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / √(mean(x²) + ε) · w, in fp32 inside. Zhang & Sennrich, arXiv 1910.07467, eq. 4."""
    wide = x.float()  # (..., D)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)  # (..., 1)
    return (wide * scale).to(x.dtype) * weight


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same in one call."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def rms_norm_row(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same for a single row: its length is read back and used as a number."""
    if x.numel() != x.shape[-1]:
        return rms_norm(x, weight, eps)
    length = torch.linalg.vector_norm(x, dtype=torch.float32).item()
    scale = (length * length / x.shape[-1] + eps) ** -0.5
    return torch.addcmul(_zero(x.dtype), x, weight, value=scale)  # 0 + scale · x · w, in one call


@functools.cache
def _zero(dtype: torch.dtype) -> Tensor:
    return torch.zeros((), dtype=dtype)


NORM = {"plain": rms_norm_plain, "fused": rms_norm, "row": rms_norm_row}


# --------------------------------------------------------------------------------------- rope


def inverse_frequencies(shape: ModelShape, factors: Tensor | None = None) -> Tensor:
    """θ^(−2i/E) for i < E/2, in fp32, with the shape's scaling; `factors` (a GGUF's `rope_freqs`)
    divide them instead. Su et al., arXiv 2104.09864; Llama 3's scaling as its release states it.
    """
    steps = torch.arange(0, shape.head_dim, 2, dtype=torch.int64).float() / shape.head_dim
    inverse = 1.0 / shape.rope_theta**steps  # (E/2,)
    if factors is not None:
        return inverse / factors.float().cpu()
    return inverse if shape.rope_scaling is None else _scaled(inverse, shape.rope_scaling)


def _scaled(inverse: Tensor, s: RopeScaling) -> Tensor:
    if s.kind == "linear":
        return inverse / s.factor
    # llama3: long waves are slowed by `factor`, short ones kept, those between interpolated
    turns = s.original_context * inverse / (2 * math.pi)  # turns within the original context
    blend = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
    blend = blend.clamp(0, 1)
    return (1 - blend) * inverse / s.factor + blend * inverse


def rope_angles(inverse: Tensor, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and signed sin of position × frequency, each (B, T, 1, E); the halves repeat."""
    angles = positions[..., None].float() * inverse  # (B, T, E/2)
    cos, sin = angles.cos(), angles.sin()
    cos = torch.cat((cos, cos), -1)[:, :, None].to(dtype)
    sin = torch.cat((-sin, sin), -1)[:, :, None].to(dtype)  # the sign of the rotated half
    return cos, sin


def with_still_heads(cos: Tensor, sin: Tensor, turned: int, still: int) -> tuple[Tensor, Tensor]:
    """The angles of `turned` heads, and after them of `still` heads that turn by zero.

    (B, T, 1, E) -> (B, T, turned + still, E): so q, k and v pass through `rope` together.
    """
    batch, new, _, width = cos.shape
    one = cos.new_ones(batch, new, still, width)
    cos = torch.cat((cos.expand(-1, -1, turned, -1), one), 2)
    return cos, torch.cat((sin.expand(-1, -1, turned, -1), torch.zeros_like(one)), 2)


def rope_plain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (x_i, x_{i+E/2}) of (B, T, heads, E) by their angles."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    c, s = cos[..., :half], sin[..., half:]
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same in three operations: x·cos + roll(x, E/2)·(∓sin)."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


# ---------------------------------------------------------------------------------- attention
# q (B, H, T, E); k, v (B, K, S, E); the T queries are the last of the S positions.
# mask (B or 1, 1, T, S), True where a query may look; None with causal=False: it may everywhere.


def attention_plain(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """softmax(q·kᵀ/√E)·v. Vaswani et al., arXiv 1706.03762, eq. 1; groups: arXiv 2305.13245."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)  # (B, H, S, E)
    scores = q.float() @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1])  # (B, H, T, S)
    if causal:
        mask = causal_mask(q.shape[2], k.shape[2], q.device)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return (scores.softmax(-1) @ v.float()).to(q.dtype)  # (B, H, T, E)


def attention_sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """torch's fused kernel: the T×S scores are never stored whole."""
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)


def attention_grouped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """For one new token: the G heads of a group become rows of one product, K and V read once.

    A single row of 16 bits takes twice as long as two rows on a CPU, where torch has no kernel of
    its own for it: it is asked for twice.
    """
    if q.shape[2] != 1:
        return attention_sdpa(q, k, v, mask, causal)
    batch, heads, _, width = q.shape
    rows = q.reshape(batch, k.shape[1], heads // k.shape[1], width)  # (B, K, G, E)
    if rows.shape[2] == 1 and rows.element_size() == 2 and rows.device.type == "cpu":
        rows = rows.expand(-1, -1, 2, -1)
        return F.scaled_dot_product_attention(rows, k, v, attn_mask=mask)[:, :, :1]
    out = F.scaled_dot_product_attention(rows, k, v, attn_mask=mask)
    return out.reshape(batch, heads, 1, width)


ATTENTION = {
    "plain": attention_plain, "sdpa": attention_sdpa, "grouped": attention_grouped
}  # fmt: skip


def causal_mask(new: int, total: int, device: torch.device) -> Tensor:
    """(T, S): query t, at position S − T + t, sees positions up to its own."""
    return torch.ones(new, total, dtype=torch.bool, device=device).tril(total - new)
