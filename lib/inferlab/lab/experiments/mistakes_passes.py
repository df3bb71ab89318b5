"""Mistakes about passes: what limits one, what it takes at another length, context or batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from inferlab import data
from inferlab.engine.generate import decode, prefill
from inferlab.engine.kernels import ATTENTION
from inferlab.engine.kvcache import KVCache
from inferlab.engine.model import Model
from inferlab.lab.experiments.mistakes import Finding, median
from inferlab.lab.experiments.reading import ids
from inferlab.lab.intervals import Interval, median_interval, ratio
from inferlab.lab.meters import interleave
from inferlab.lab.probes import Probe, gemm_probe
from inferlab.lab.rates import read_ceiling
from inferlab.theory import counts, roofline
from inferlab.theory.shapes import ModelShape
from inferlab.theory.units import bytes_per_weight

_PRODUCT = {"cpu": 1024, "mps": 2048, "cuda": 8192}  # n of the square product beside the passes


@dataclass(frozen=True)
class Passes:
    """Passes of one model and the two ceilings, one of each per round, seconds.

    read, product    one call of a probe that reads `read_bytes` or computes `product_flops`
    reading[n]       a prefill pass over n tokens
    writing[n]       a decode pass whose token is the n-th of its sequence (n − 1 in the cache)
    """

    shape: ModelShape
    dtype: str
    read: tuple[float, ...]
    read_bytes: float
    product: tuple[float, ...]
    product_flops: float
    reading: Mapping[int, tuple[float, ...]]
    writing: Mapping[int, tuple[float, ...]]


def time_passes(model: Model, lengths: Sequence[int] = (16, 300, 512), rounds: int = 8) -> Passes:
    """Time prefill of each length, decode at each length, and both ceilings, in rounds."""
    where, dtype = str(model.device), model.dtype_name
    n = _PRODUCT[model.device.type]
    read = read_ceiling(where, "dot")
    product = gemm_probe(dtype, n, n, n, where, model.table["linear"]["gemm"])
    functions: dict[object, Callable] = {"read": read, "product": product}
    cache = model.cache(1, max(lengths))
    for length in lengths:
        functions["reading", length] = _reading(model, cache, length)
        functions["writing", length] = _writing(model, cache, length)
    times = interleave(functions, rounds, device=where)
    return _passes(model, times, read, product, lengths)


def mfu(passes: Passes, context: int = 16, prompt: int = 300) -> list[Finding]:
    """Low MFU as a verdict on the engine: it promises 1/MFU; the nearer ceiling allows less.

    MFU = FLOPs ÷ (t · rate of the product beside it), MBU = bytes ÷ (t · bandwidth beside it).
    A pass can become 1 / max(MFU, MBU) times as fast before it meets a ceiling. Off: promised ÷
    possible, = max(MFU, MBU) / MFU.
    """
    found = []
    for regime, work, times in (
        ("decode, batch 1", counts.Sequence(1, context - 1), passes.writing[context]),
        (f"prefill, {prompt} tokens", counts.Sequence(prompt), passes.reading[prompt]),
    ):
        step = _count(passes, work)
        took = np.array(times)
        compute = step.flops / took * np.array(passes.product) / passes.product_flops  # MFU
        memory = step.bytes_streamed / took * np.array(passes.read) / passes.read_bytes  # MBU
        off = median_interval(np.maximum(compute, memory) / compute)
        possible = 1 / np.median(np.maximum(compute, memory))
        promised = 1 / np.median(compute)
        found.append(Finding("mfu", regime, float(promised), float(possible), "×", off))
    return found


def critical_batch(passes: Passes, believed: int = 300) -> list[Finding]:
    """How many tokens share the weights' read before arithmetic takes longer: believed 300.

    Here: ridge · b / 2 tokens at the two ceilings (b bytes per weight; `roofline.critical_batch`),
    off: believed ÷ here. And a pass over so many tokens beside a pass over one, which should take
    as long: off: found ÷ believed.
    """
    rate = np.array(passes.product_flops) / np.array(passes.product)
    bandwidth = np.array(passes.read_bytes) / np.array(passes.read)
    here = rate / bandwidth * bytes_per_weight(passes.dtype) / 2  # tokens
    many, one = passes.reading[believed], passes.writing[min(passes.writing)]
    middle = float(np.median(here))
    return [
        Finding("critical-batch", f"both ceilings, {passes.dtype}", believed, middle, "tokens",
                median_interval(believed / here)),
        Finding("critical-batch", f"a pass over {believed} tokens", median(one), median(many),
                "s", ratio(many, one)),
    ]  # fmt: skip


def no_cache(passes: Passes) -> list[Finding]:
    """Without a cache a token costs a pass over all tokens before it: believed to be no longer.

    Off: prefill of n tokens ÷ decode of the n-th.
    """
    return [
        Finding("no-cache", f"token {n}", median(passes.writing[n]), median(passes.reading[n]),
                "s", ratio(passes.reading[n], passes.writing[n]), at_most=True)
        for n in passes.reading
    ]  # fmt: skip


def prompt_and_answer(passes: Passes, prompts: Sequence[int], answer: int = 8) -> list[Finding]:
    """`prompts` tokens read beside `answer` tokens written: believed to cost no more.

    Off: one prefill pass ÷ `answer` decode passes.
    """
    return [
        Finding("prompt-answer", f"{n} read, {answer} written",
                answer * median(passes.writing[n]), median(passes.reading[n]), "s",
                ratio(passes.reading[n], passes.writing[n], 1 / answer), at_most=True)
        for n in prompts
    ]  # fmt: skip


def attention(
    model: Model, contexts: Sequence[int] = (64, 512, 4096, 16384), rounds: int = 8
) -> list[Finding]:
    """A decode pass after more and more tokens, beside one after the fewest: believed equal.

    The cache holds random values. Off: found ÷ believed. The contexts that a model was not made
    for are left out.
    """
    fit = [c for c in contexts if c < model.shape.max_context]
    steps = {c: filled(model, 1, c)[0] for c in fit}
    times = interleave(steps, rounds, device=str(model.device))
    least = fit[0]
    return [
        Finding("attention", f"{c:,} tokens of context", median(times[least]), median(times[c]),
                "s", ratio(times[c], times[least]))
        for c in fit[1:]
    ]  # fmt: skip


def max_of_totals(
    model: Model, batch: int = 32, contexts: Sequence[int] = (32, 1024), rounds: int = 8
) -> tuple[list[Finding], list[Finding]]:
    """A step of two parts, its products and its attention: believed to take the longer of the two.

    The products are a decode step after one token, whose attention has nothing to read; attention
    is all layers' attention alone, on the same cache. Off: the whole step ÷ the longer part. The
    second list has ÷ their sum instead.
    """
    functions: dict[object, Callable] = {"products": filled(model, batch, 1)[0]}
    for c in contexts:
        functions["whole", c], functions["attention", c] = filled(model, batch, c)
    times = interleave(functions, rounds, device=str(model.device))

    def against(join: Callable) -> list[Finding]:
        found = []
        for c in contexts:
            whole, parts = times["whole", c], join(times["products"], times["attention", c])
            regime = f"{batch} sequences of {c:,} tokens"
            off = ratio(whole, parts)
            found.append(
                Finding("max-of-totals", regime, median(parts), median(whole), "s", off)
            )  # fmt: skip
        return found

    return against(np.maximum), against(np.add)


def predicted(
    shape: ModelShape, machine, lengths: Sequence[int], prompt: int = 512, answer: int = 8
) -> list[Finding]:
    """`no_cache`, `prompt_and_answer` on nameplate ceilings, batch 1, bf16: nothing is measured."""
    found, where = [], f"{shape.name} on {machine.name}"
    for n in lengths:
        whole = roofline.prefill_time(shape, machine, prompt=n)
        cached = roofline.decode_time(shape, machine, context=n - 1)
        found.append(_elsewhere("no-cache", f"{where}, token {n}", cached, whole, "predicted"))
    read = roofline.prefill_time(shape, machine, prompt=prompt)
    written = answer * roofline.decode_time(shape, machine, context=prompt)
    regime = f"{where}, {prompt} read, {answer} written"
    return [*found, _elsewhere("prompt-answer", regime, written, read, "predicted")]


def published(answer: int = 8) -> list[Finding]:
    """`prompt_and_answer` as others measured it: 512 tokens read, `answer` written, batch 1.

    Rows of data/published_points.csv: milliseconds of FasterTransformer (116, 115) and tokens per
    second of llama.cpp (82, 74).
    """
    rows = {row["id"]: row for row in data.read_csv("published_points.csv")}
    found = []
    for read_id, written_id in (("116", "115"), ("82", "74")):
        read, written = rows[read_id], rows[written_id]
        if read["unit"] == "ms":
            took, each = float(read["published"]) / 1e3, float(written["published"]) / 1e3
        else:
            took = int(read["prompt"]) / float(read["published"])
            each = 1 / float(written["published"])
        regime = f"{read['model']} on {read['hw']} ({read['source']})"
        found.append(_elsewhere("prompt-answer", regime, answer * each, took, "published"))
    return found


def _elsewhere(statement: str, regime: str, believed: float, found: float, kind: str) -> Finding:
    off = Interval.exact(found / believed)
    return Finding(statement, regime, believed, found, "s", off, at_most=True, elsewhere=kind)


def filled(model: Model, batch: int, context: int) -> tuple[Callable, Callable]:
    """A decode step of `batch` sequences after `context` tokens, and its attention alone.

    Both leave the cache as they found it.
    """
    cache = model.cache(batch, context + 1)
    alone = attention_alone(cache, model.shape.n_heads, model.table["attention"]["gemv"])

    def step() -> None:
        cache.lengths = [context] * batch
        decode(model, cache, [1] * batch)

    return step, alone


def attention_alone(cache: KVCache, heads: int, name: str) -> Callable[[], None]:
    """The attention of one new token over a full cache, all layers, by the kernel of that name.

    The cache is filled with random values, in every layer the same.
    """
    for half in (cache.k, cache.v):
        half[:] = torch.randn_like(half[0])
    q = cache.k.new_ones(cache.batch, heads, 1, cache.k.shape[-1])  # (B, H, 1, E)
    kernel = ATTENTION[name]

    @torch.inference_mode()
    def run() -> None:
        for k, v in zip(cache.k, cache.v, strict=True):
            kernel(q, k, v, None, False)

    return run


def _passes(model: Model, times: Mapping, read: Probe, product: Probe, lengths) -> Passes:
    return Passes(
        model.shape, model.dtype_name, times["read"], read.work, times["product"], product.work,
        {n: times["reading", n] for n in lengths}, {n: times["writing", n] for n in lengths},
    )  # fmt: skip


def _count(passes: Passes, work: counts.Sequence) -> counts.StepCount:
    return counts.step(passes.shape, [work], weight_dtype=passes.dtype, kv_dtype=passes.dtype)


def _reading(model: Model, cache, length: int) -> Callable[[], object]:
    prompt = ids(length, model.shape.vocab)

    def run() -> None:
        cache.clear()
        prefill(model, cache, prompt)

    return run


def _writing(model: Model, cache, length: int) -> Callable[[], object]:
    def run() -> None:
        cache.lengths = [length - 1]
        decode(model, cache, [1])

    return run
