"""Mistakes about single operations: fewer bits, fewer KV heads, buffers too small, zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from inferlab.engine import kernels
from inferlab.engine.device import DTYPES, pick_device, short_name
from inferlab.engine.kvcache import KVCache
from inferlab.engine.load import random_model
from inferlab.lab import host
from inferlab.lab.experiments.mistakes import Finding, median
from inferlab.lab.experiments.mistakes_passes import attention_alone, filled
from inferlab.lab.intervals import ratio
from inferlab.lab.meters import interleave
from inferlab.lab.probes import gemm_probe, read_probe, working_set
from inferlab.lab.rates import read_ceiling
from inferlab.theory import shapes

_WIDTH = 4096  # columns of the weight in the product
_ROWS = 64  # rows of random values that are repeated to make it
_WEIGHTS = (2**27, 2**29)  # fewest and most weights of the product
_SWEPT = 2**26  # bytes that one sample of a small read probe reads, in many calls


@dataclass(frozen=True)
class Products:
    """Seconds of one product of `rows` rows by the same weight in several types, per round.

    times[rows][dtype], dtype among "fp32", "fp16", "bf16" and "int8", which are what exists here;
    int8 weights with 16-bit activations ("int8" only where torch has such a product).
    """

    weights: int
    half: str
    times: dict[int, dict[str, tuple[float, ...]]]


def time_products(
    device: str = "cpu", rows: Sequence[int] = (1, 32), rounds: int = 8, weights: int | None = None
) -> Products:
    """Time (rows, k)·(k, n) with the weight in each type, by the kernel the engine takes.

    weights  n·k; default four last-level caches of int8 weights, from 2^27 to 2^29
    """
    where = pick_device(device)
    cache = host.last_level_cache() or 0
    count = weights or min(_WEIGHTS[1], max(_WEIGHTS[0], 4 * cache))
    source = torch.Generator(device=where).manual_seed(0)
    base = torch.randn(_ROWS, _WIDTH, generator=source, device=where)
    n = max(1, count // (_ROWS * _WIDTH))
    half = "fp16" if where.type == "mps" else "bf16"
    runs: dict[object, Callable] = {}
    for name in dict.fromkeys(("fp32", half, "fp16")):
        one = _products(base.to(DTYPES[name]).repeat(n, 1), rows)
        runs |= {(m, name): run for m, run in one.items()}
    if where.type == "cpu":
        runs |= {(m, "int8"): run for m, run in _int8(base, n, rows).items()}
    with torch.inference_mode():
        times = interleave(runs, rounds, device=str(where))
    by_rows = {m: {k[1]: times[k] for k in runs if k[0] == m} for m in rows}
    return Products(n * _ROWS * _WIDTH, half, by_rows)


def half_bytes(products: Products) -> list[Finding]:
    """Each halving of the bytes: believed twice as fast. Off: 2 ÷ how many times as fast."""
    return [
        Finding("half-bytes", f"{wide} to {slim}, {_rows(m)}", 2.0,
                ratio(times[wide], times[slim]).value, "×", ratio(times[slim], times[wide], 2.0))
        for m, times in products.times.items()
        for wide, slim in _pairs(products, times)
    ]  # fmt: skip


def quantization_slows(products: Products) -> list[Finding]:
    """int8 beside 16 bits: believed slower or equal. Off: how many times as fast int8 is."""
    return [
        Finding("quantization-slows", f"{products.half} to int8, {_rows(m)}", 1.0,
                ratio(times[products.half], times["int8"]).value, "×",
                ratio(times[products.half], times["int8"]), at_most=True)
        for m, times in products.times.items() if "int8" in times
    ]  # fmt: skip


def grouped_heads(
    device: str = "cpu",
    dtypes: Sequence[str] = ("fp32", "bf16"),
    heads: int = 32,
    kv_heads: int = 8,
    context: int = 4096,
    layers: int = 4,
    rounds: int = 8,
) -> list[Finding]:
    """Decode attention with fewer K/V heads than query heads: believed heads/kv_heads as fast.

    Alone in each dtype, over `layers` layers of a cache; and in the first, a whole decode step of
    half as many layers of llama-3.2-1b. Kernels: the engine's. Off: believed ÷ times as fast.
    """
    where, believed = pick_device(device), heads / kv_heads
    shape = replace(
        shapes.get("llama-3.2-1b"), name="few layers", n_layers=layers, vocab=2048, n_heads=heads
    )
    runs: dict[tuple[str, int], Callable] = {}
    for count in (heads, kv_heads):
        few = replace(shape, n_kv_heads=count, n_layers=max(1, layers // 2))
        runs["a whole step", count] = filled(random_model(few, where, dtypes[0]), 1, context)[0]
        for dtype in dtypes:
            cache = KVCache(replace(shape, n_kv_heads=count), 1, context, DTYPES[dtype], where)
            name = kernels.default(where, DTYPES[dtype])["attention"]["gemv"]
            runs[f"attention alone, {dtype}", count] = attention_alone(cache, heads, name)
    times = interleave(runs, rounds, device=str(where))
    found = []
    for part in dict.fromkeys(part for part, _ in runs):
        many, few = times[part, heads], times[part, kv_heads]
        words = part if "," in part else f"{part}, {dtypes[0]}"
        speed, off = ratio(many, few).value, ratio(few, many, believed)
        found.append(Finding("grouped-heads", words, believed, speed, "×", off))
    return found


def in_cache(
    device: str = "cpu",
    sizes: Sequence[int] = (2**20, 2**22, 2**24, 2**26),
    rounds: int = 8,
    whole: int | None = None,
) -> list[Finding]:
    """The bandwidth of a small buffer read again and again, taken for that of memory.

    whole  bytes of the buffer that is memory's: default `probes.working_set`
    Off: bandwidth at a size ÷ bandwidth of the whole working set.
    """
    place = str(pick_device(device))
    nbytes = whole or working_set(place)
    large = read_ceiling(place, "dot", nbytes)
    work, runs = {nbytes: large.work}, {nbytes: large.run}
    for size in sizes:
        small = read_probe(place, "dot", size)
        calls = max(1, _SWEPT // size)
        work[size], runs[size] = small.work * calls, _many(small.run, calls)
    times = interleave(runs, rounds, device=place)
    rate = {size: work[size] / median(times[size]) for size in runs}
    return [
        Finding("in-cache", f"{size / 2**20:g} MiB read", rate[size], rate[nbytes], "B/s",
                ratio(times[nbytes], times[size], work[size] / work[nbytes]))
        for size in sizes
    ]  # fmt: skip


def zeros(device: str = "cpu", dtype: str = "bf16", rounds: int = 12) -> list[Finding]:
    """Zeros for data, in a product and in a read. Off: time with data ÷ time with zeros."""
    where = pick_device(device)
    n = 8192 if where.type == "cuda" else 1024
    kind = kernels.default(where, DTYPES[dtype])["linear"]["gemm"]
    data = gemm_probe(dtype, n, n, n, str(where), kind)
    nothing = torch.zeros(n, n, dtype=DTYPES[dtype], device=where)
    linear = kernels.Linear(nothing, None, {kind})
    read = read_ceiling(str(where), "sum")
    empty = torch.zeros(read.work // 4, device=where)
    runs = {
        "data": _many(data.run, 4), "zeros": _many(lambda: linear(nothing, kind), 4),
        "read": read.run, "read zeros": empty.sum,
    }  # fmt: skip
    with torch.inference_mode():
        times = interleave(runs, rounds, device=str(where))
    return [
        Finding("zeros", f"{words}, {where.type}", median(times[no]), median(times[yes]), "s",
                ratio(times[yes], times[no]))
        for words, yes, no in (
            (f"a product in {short_name(DTYPES[dtype])}", "data", "zeros"),
            ("a read of memory", "read", "read zeros"),
        )
    ]  # fmt: skip


def _pairs(products: Products, times: dict) -> list[tuple[str, str]]:
    pairs = [("fp32", products.half), ("fp32", "fp16"), (products.half, "int8")]
    return [pair for pair in dict.fromkeys(pairs) if pair[1] in times]


def _rows(m: int) -> str:
    return "1 row" if m == 1 else f"{m} rows"


def _products(weight: torch.Tensor, rows: Sequence[int]) -> dict[int, Callable]:
    """The engine's own linear layer on so many rows, by the kernel its rule takes for them."""
    table = kernels.default(weight.device, weight.dtype)["linear"]
    kinds = {m: table[kernels.regime(m)] for m in rows}
    linear = kernels.Linear(weight, None, set(kinds.values()))

    def product(m: int) -> Callable[[], object]:
        x = weight[:1].expand(m, -1).contiguous()  # (m, k)

        def run() -> None:
            with kernels.switches(kinds[m]):
                linear(x, kinds[m])

        return run

    return {m: product(m) for m in rows}


def _int8(base: torch.Tensor, repeats: int, rows: Sequence[int]) -> dict[int, Callable]:
    """torch's product of bf16 activations and int8 weights with a scale per row, on a CPU."""
    scale = base.abs().amax(1, keepdim=True) / 127  # (rows, 1)
    weight = (base / scale).round().to(torch.int8).repeat(repeats, 1)  # (n, k)
    scales = scale[:, 0].to(torch.bfloat16).repeat(repeats)  # (n,)

    def product(m: int) -> Callable[[], object]:
        x = base[:1].to(torch.bfloat16).expand(m, -1).contiguous()  # (m, k)
        return lambda: torch._weight_int8pack_mm(x, weight, scales)

    return {m: product(m) for m in rows}


def _many(fn: Callable[[], object], calls: int) -> Callable[[], object]:
    def run() -> None:
        for _ in range(calls):
            fn()

    return run
