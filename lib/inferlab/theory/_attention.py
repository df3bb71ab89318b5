"""Operations of attention in one step: multi-head, grouped-query, and multi-head latent.

Letters: T tokens of the step, d d_model, H and H_kv heads, D_h head_dim.
"""

from __future__ import annotations

from collections.abc import Iterator

from inferlab.theory._ops import Row, Span, Widths, biases, elementwise, linear, norm, row


def attention(shape, w: Widths, tokens: int, spans: list[Span]) -> Iterator[Row]:
    d, dh, layers = shape.d_model, shape.head_dim, shape.n_layers
    q, kv = shape.n_heads * dh, shape.n_kv_heads * dh
    yield linear("q", w, tokens, q, d, layers)
    yield linear("k", w, tokens, kv, d, layers)
    yield linear("v", w, tokens, kv, d, layers)
    if shape.qkv_bias:
        yield from biases("qkv_bias", w, tokens, [q, kv, kv], layers)
    if shape.qk_norm:
        rows = tokens * (shape.n_heads + shape.n_kv_heads)
        op = norm("qk_norm", shape, w, rows, dh, layers)
        yield op | {"weight_bytes": 2 * dh * w.act * layers}
    if shape.rope_theta is not None:
        yield elementwise("rope", w, tokens * (q + kv), layers, flops=3)
    yield _cache_append(w, tokens, 2 * kv, layers)
    cache = kv * w.kv * sum(s.read for s in spans)
    yield from _attend(
        w, tokens, shape.n_heads, sum(s.pairs for s in spans), layers, (dh, dh), (cache, cache)
    )
    yield linear("o", w, tokens, d, q, layers)
    if shape.o_bias:
        yield from biases("o_bias", w, tokens, [d], layers)


def latent_attention(shape, w: Widths, tokens: int, spans: list[Span]) -> Iterator[Row]:
    """Multi-head latent attention. Source: DeepSeek-V2, arXiv 2405.04434, section 2.1."""
    d, layers, heads = shape.d_model, shape.n_layers, shape.n_heads
    rank, rope, nope = shape.kv_lora_rank, shape.qk_rope_dim, shape.qk_nope_dim
    q = heads * (nope + rope)
    if shape.q_lora_rank:
        yield linear("q_a", w, tokens, shape.q_lora_rank, d, layers)
        yield norm("q_a_norm", shape, w, tokens, shape.q_lora_rank, layers)
        yield linear("q", w, tokens, q, shape.q_lora_rank, layers)
    else:
        yield linear("q", w, tokens, q, d, layers)
    yield linear("kv_a", w, tokens, rank + rope, d, layers)
    yield norm("kv_a_norm", shape, w, tokens, rank, layers)
    yield elementwise("rope", w, tokens * (heads + 1) * rope, layers, flops=3)
    yield _cache_append(w, tokens, rank + rope, layers)
    yield from _latent_attend(shape, w, spans)
    yield linear("o", w, tokens, d, heads * shape.v_head_dim, layers)


def _cache_append(w: Widths, tokens: int, width: int, layers: int) -> Row:
    return row("cache", layers, read_bytes=tokens * width * w.act, kv_written=tokens * width * w.kv)


def _attend(
    w: Widths,
    tokens: int,
    heads: int,
    pairs: int,
    times: int,
    dims: tuple[int, int],
    kv: tuple[float, float],
    suffix: str = "",
    extra: tuple[float, float] = (0.0, 0.0),
) -> Iterator[Row]:
    """Scores, softmax and weighted values.

    dims: width of a key and of a value; kv: bytes of the cache read for each; extra: bytes of
    activations read for each beside the queries.

    Softmax of a row of S scores: scale S, maximum S - 1, subtract S, exponential S, sum S - 1,
    divide S: 6 S - 2 FLOP.
    """
    key, value = dims
    yield row(
        f"scores{suffix}",
        times,
        flops=2 * heads * pairs * key,
        read_bytes=tokens * heads * key * w.act + extra[0],
        kv_read=kv[0],
        m=heads,
        n=pairs,
        k=key,
    )
    yield row(f"softmax{suffix}", times, flops=heads * (6 * pairs - 2 * tokens))
    yield row(
        f"values{suffix}",
        times,
        flops=2 * heads * pairs * value,
        read_bytes=extra[1],
        written_bytes=tokens * heads * value * w.act,
        kv_read=kv[1],
        m=heads,
        n=value,
        k=pairs,
    )


def _latent_attend(shape, w: Widths, spans: list[Span]) -> Iterator[Row]:
    """Per sequence the form with fewer FLOP; the cache of latents is read once in either.

    Expanded: kv_b turns the latent of every token seen into keys and values, and heads work on
    widths (nope + rope, v). Absorbed: kv_b is applied to the queries and to the results instead,
    and heads work on the latent itself, widths (rank + rope, rank).
    """
    heads, rank, rope = shape.n_heads, shape.kv_lora_rank, shape.qk_rope_dim
    nope, v, layers = shape.qk_nope_dim, shape.v_head_dim, shape.n_layers
    expand = heads * (nope + v)

    def cheaper_expanded(s: Span) -> bool:
        expanded = expand * rank * s.read + heads * (nope + rope + v) * s.pairs
        return expanded <= expand * rank * s.new + heads * (2 * rank + rope) * s.pairs

    full = [s for s in spans if cheaper_expanded(s)]
    absorbed = [s for s in spans if not cheaper_expanded(s)]
    seen = sum(s.read for s in full)
    new = sum(s.new for s in absorbed)
    latent = (rank + rope) * w.kv
    yield row(
        "kv_b",
        layers,
        flops=2 * (seen + new) * expand * rank,
        weight_bytes=expand * rank * w.weight,
        read_bytes=new * heads * (nope + rank) * w.act,
        written_bytes=(seen * expand + new * heads * (rank + v)) * w.act,
        kv_read=seen * latent,
        m=seen + new,
        n=expand,
        k=rank,
    )
    if full:
        rows, pairs = sum(s.new for s in full), sum(s.pairs for s in full)
        keys_values = (seen * heads * (nope + rope) * w.act, seen * heads * v * w.act)
        yield from _attend(
            w, rows, heads, pairs, layers, (nope + rope, v), (0.0, 0.0), "_expanded", keys_values
        )
    if absorbed:
        cache, pairs = latent * sum(s.read for s in absorbed), sum(s.pairs for s in absorbed)
        yield from _attend(
            w, new, heads, pairs, layers, (rank + rope, rank), (cache, 0.0), "_absorbed"
        )
