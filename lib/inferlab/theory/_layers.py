"""The operations of a transformer step, from the embedding to the logits.

`counts.step` is the way in. Each operation is a dict of `counts.OpCount` fields.
"""

from __future__ import annotations

from collections.abc import Iterator

from inferlab.theory._attention import attention, latent_attention
from inferlab.theory._ops import Row, Span, Widths, biases, elementwise, linear, norm, row, span
from inferlab.theory.formulas import experts_touched

__all__ = ["Widths", "operations", "span"]


def operations(shape, widths: Widths, tokens: int, logits: int, spans: list[Span]) -> Iterator[Row]:
    """All operations of a step, from the embedding to the logits."""
    d, layers = shape.d_model, shape.n_layers
    yield row(
        "embed", 1, read_bytes=tokens * d * widths.head, written_bytes=tokens * d * widths.act
    )
    if shape.learned_positions:
        yield row(
            "position",
            1,
            flops=tokens * d,
            read_bytes=tokens * d * (widths.weight + widths.act),
            written_bytes=tokens * d * widths.act,
        )
    yield norm("attn_norm", shape, widths, tokens, d, layers)
    if shape.kv_lora_rank:
        yield from latent_attention(shape, widths, tokens, spans)
    else:
        yield from attention(shape, widths, tokens, spans)
    if not shape.parallel_blocks:
        yield norm("ffn_norm", shape, widths, tokens, d, layers)
    if shape.n_moe_layers < layers:
        dense = layers - shape.n_moe_layers
        yield from _mlp(shape, widths, tokens, shape.d_ff, dense, "")
    if shape.n_moe_layers:
        yield from _experts(shape, widths, tokens)
    yield elementwise("residual", widths, tokens * d, 2 * layers, flops=1, operands=2)
    yield norm("output_norm", shape, widths, logits, d, 1)
    yield linear("head", widths, logits, shape.vocab, d, 1, weight=widths.head)


_ACTIVATION_FLOPS = {
    "silu": 4,  # x / (1 + exp(-x)): negate, exponential, add, divide
    "gelu": 5,  # x / 2 * (1 + erf(x / sqrt 2)): scale, erf, add, scale, multiply
    "relu": 1,  # a comparison
}


def _mlp(shape, w: Widths, rows: int, width: int, times: int, prefix: str) -> Iterator[Row]:
    d = shape.d_model
    if shape.gated_mlp:
        yield linear(f"{prefix}gate", w, rows, width, d, times)
    yield linear(f"{prefix}up", w, rows, width, d, times)
    if shape.mlp_bias:
        yield from biases(
            f"{prefix}mlp_bias", w, rows, [width] * (1 + shape.gated_mlp) + [d], times
        )
    flops = _ACTIVATION_FLOPS[shape.activation] + shape.gated_mlp
    yield elementwise(
        f"{prefix}act", w, rows * width, times, flops=flops, operands=1 + shape.gated_mlp
    )
    yield linear(f"{prefix}down", w, rows, d, width, times)


def _experts(shape, w: Widths, tokens: int) -> Iterator[Row]:
    """Router, the k experts of each token, their weighted sum, and the shared experts."""
    d, count, active, times = (
        shape.d_model, shape.n_experts, shape.n_experts_active, shape.n_moe_layers,
    )  # fmt: skip
    yield linear("router", w, tokens, count, d, times)
    # Softmax or sigmoid over the experts and the choice of k: 6 FLOP per token and expert.
    op = elementwise("route", w, tokens * count, times, flops=6)
    yield op | {"weight_bytes": shape.router_bias * count * w.act * times}
    share = experts_touched(count, active, tokens)
    for op in _mlp(shape, w, tokens * active, shape.d_ff_expert, times, "expert_"):
        if "weight_bytes" in op:
            op["weight_bytes"] *= share
        yield op
    yield row(
        "combine",
        times,
        flops=tokens * d * (2 * active - 1),
        read_bytes=tokens * active * (d + 1) * w.act,
        written_bytes=tokens * d * w.act,
    )
    if shape.n_shared_experts:
        width = shape.n_shared_experts * shape.d_ff_expert
        yield from _mlp(shape, w, tokens, width, times, "shared_")
        yield elementwise("shared_add", w, tokens * d, times, flops=1, operands=2)
