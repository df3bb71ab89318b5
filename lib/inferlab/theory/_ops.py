"""The building blocks of a count: a matrix product, a norm, an elementwise operation.

A row is a dict of `counts.OpCount` fields, already multiplied by its repetitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

Row = dict[str, float]


class Widths(NamedTuple):
    """Bytes per element of matrices, of head and embedding, of activations and of the cache."""

    weight: float
    head: float
    act: float
    kv: float


class Span(NamedTuple):
    """What attention of one sequence touches: rows, pairs of query and key, cached tokens read."""

    new: int
    total: int
    pairs: int
    read: int


def span(shape, new: int, past: int, causal_half: bool, block: int = 1) -> Span:
    """Attention of `new` tokens after `past`: the window w, if any, limits what a query sees.

    Needed pairs: sum over i = 1 ... new of min(past + i, w). Computed pairs without the causal
    half: new * min(past + new, w + new - 1), the block of keys any of the queries sees. In blocks
    of b keys a query at position p computes those to the end of its block: min(b ceil(p/b), all).
    """
    window = shape.sliding_window or past + new
    read = min(past + new, window + new - 1)
    if not causal_half:
        return Span(new, past + new, new * read, read)
    if block > 1:
        edges = range(past // block * block, past + new, block)
        inside = [min(e + block, past + new) for e in edges]  # the end of each block of keys
        queries = [end - max(e, past) for e, end in zip(edges, inside, strict=True)]
        seen = sum(n * min(end, read) for n, end in zip(queries, inside, strict=True))
        return Span(new, past + new, seen, read)
    growing = max(0, min(new, window - past))
    pairs = growing * past + growing * (growing + 1) // 2 + (new - growing) * window
    return Span(new, past + new, pairs, read)


def row(name: str, times: int, **one) -> Row:
    """The fields of one repetition, times the repetitions; m, n, k stay those of one."""
    shape = {key: one.pop(key) for key in ("m", "n", "k") if key in one}
    return {"name": name, "times": times} | {k: v * times for k, v in one.items()} | shape


def linear(
    name: str, w: Widths, m: int, n: int, k: int, times: int, weight: float | None = None
) -> Row:
    """(m, k) times the weight (n, k) transposed: 2 m n k FLOP, n k weights read."""
    return row(
        name,
        times,
        flops=2 * m * n * k,
        weight_bytes=n * k * (w.weight if weight is None else weight),
        read_bytes=m * k * w.act,
        written_bytes=m * n * w.act,
        m=m,
        n=n,
        k=k,
    )


def elementwise(
    name: str, w: Widths, elements: int, times: int, flops: int, operands: int = 1
) -> Row:
    """`flops` FLOP per element; `operands` arrays of that size are read and one is written."""
    return row(
        name,
        times,
        flops=flops * elements,
        read_bytes=operands * elements * w.act,
        written_bytes=elements * w.act,
    )


def norm(name: str, shape, w: Widths, rows: int, width: int, times: int) -> Row:
    """RMS norm: square, sum, scale, weight: 4 per element, + 2 per row (eps, root).

    Layer norm also subtracts the mean (sum, subtract: 2 more) and may add a bias (1 more).
    """
    per_element = 4 + 2 * (shape.norm == "layer") + shape.norm_bias
    return row(
        name,
        times,
        flops=rows * (per_element * width + 2),
        weight_bytes=(1 + shape.norm_bias) * width * w.act,
        read_bytes=rows * width * w.act,
        written_bytes=rows * width * w.act,
    )


def biases(name: str, w: Widths, tokens: int, widths: list[int], times: int) -> Iterator[Row]:
    """Biases added to the outputs of linear layers of these widths, in place."""
    total = sum(widths)
    if total:
        op = elementwise(name, w, tokens * total, times, flops=1)
        yield op | {"weight_bytes": total * w.act * times}
