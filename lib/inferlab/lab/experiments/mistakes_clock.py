"""Mistakes about the clock: what a wait consists of, what a mean hides, what a first run pays."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from inferlab.engine.device import pick_device
from inferlab.engine.generate import generate, prefill
from inferlab.engine.load import random_model
from inferlab.engine.model import Model
from inferlab.engine.sampling import greedy
from inferlab.lab.clock import Clock, seconds, synchronizer
from inferlab.lab.counters import Unavailable
from inferlab.lab.experiments.mistakes import Finding, median
from inferlab.lab.experiments.reading import ids
from inferlab.lab.intervals import median_interval, ratio
from inferlab.lab.meters import timeline
from inferlab.lab.probes import gemm_probe
from inferlab.theory import shapes
from inferlab.theory.latency import Timeline


def ttft(
    model: Model,
    text: str,
    before: Sequence[int] = (0, 1),
    rounds: int = 8,
    encode: Callable[[str], Sequence[int]] | None = None,
) -> list[Finding]:
    """Requests of one text sent at the same moment, served one after another: the last one's TTFT.

    before  how many requests stand in line before it
    encode  text -> ids; default the model's tokenizer
    Every request is tokenized, read in one pass, and its first token is chosen. Off: TTFT ÷ the
    time of the prefill pass alone, taken in the same round.
    """
    encode, where = encode or model.tokenizer.encode, str(model.device)
    prompt = list(encode(text))
    cache = model.cache(1, len(prompt))

    def serve(count: int) -> Iterator[object]:
        for _ in range(count):
            cache.clear()
            yield greedy(prefill(model, cache, encode(text)))

    def alone() -> Iterator[object]:
        cache.clear()
        yield prefill(model, cache, prompt)

    reads, waits = [], {count: [] for count in before}
    for index in range(rounds + 1):
        took = timeline(alone(), where)[1].ttft
        lines = {n: timeline(serve(n + 1), where)[1] for n in before}
        if index:  # the first round warms up
            reads.append(took)
            for n, line in lines.items():
                waits[n].append(line.e2e)  # its last token is the first of the last request
    return [
        Finding("ttft", _in_line(n), median(reads), median(found), "s", ratio(found, reads))
        for n, found in waits.items()
    ]  # fmt: skip


def mean_itl(model: Model, prompt: int = 128, answer: int = 12, rounds: int = 8) -> list[Finding]:
    """An answer during which the engine reads another prompt once, and one without.

    Off: the longest time between two tokens ÷ the mean of all, by answer.
    """
    text = ids(prompt, model.shape.vocab)
    cache, other = model.cache(1, prompt + answer), model.cache(1, prompt)
    means, longest = {True: [], False: []}, {True: [], False: []}
    for index in range(rounds + 1):
        for stalled in (True, False):
            cache.clear()
            at = answer // 2 if stalled else -1
            steps = _stalled(model, cache, other, text, answer, at)
            line = timeline(steps, str(model.device))[1]
            if index:
                means[stalled].append(line.tpot)
                longest[stalled].append(max(line.itl))
    return [
        Finding("mean-itl", words, median(means[stalled]), median(longest[stalled]), "s",
                ratio(longest[stalled], means[stalled]))
        for stalled, words in (
            (True, f"another prompt of {prompt} tokens read meanwhile"), (False, "nobody else")
        )
    ]  # fmt: skip


def tpot(
    model: Model,
    prompts: Sequence[int] = (128, 4),
    answers: Sequence[int] = (4, 16),
    rounds: int = 8,
) -> list[Finding]:
    """Whole time ÷ tokens, taken for the time per output token (after the first).

    The short answers are the beginnings of the longest. Off: e2e / n ÷ TPOT.
    """
    longest, lines = max(answers), {p: [] for p in prompts}
    cache = model.cache(1, max(prompts) + longest)
    for index in range(rounds + 1):
        for p in prompts:
            cache.clear()
            steps = generate(model, ids(p, model.shape.vocab), longest, cache=cache)
            line = timeline(steps, str(model.device))[1]
            if index:
                lines[p].append(line)
    found = []
    for p in prompts:
        for n in answers:
            cut = [Timeline(line.sent, line.tokens[:n]) for line in lines[p]]
            right, wrong = [c.tpot for c in cut], [c.e2e / n for c in cut]
            regime = f"{p} tokens read, {n} written"
            off = ratio(wrong, right)
            found.append(Finding("tpot", regime, median(wrong), median(right), "s", off))
    return found


def first_run(model: Model, rounds: int = 8, clock: Clock = time.perf_counter) -> list[Finding]:
    """The first run of something new beside its median over five later ones: believed equal.

    A fresh small model each round, read and written with; and on `model`, warmed up, a prompt of a
    length it has not met. Widths and lengths are drawn by chance, so that a second call meets new
    ones too. Off: the first ÷ the later ones.
    """
    where, sync = str(model.device), synchronizer(str(model.device))
    draw = random.Random()
    base = replace(shapes.get("smollm2-135m"), n_layers=4, vocab=1024, name="fresh")
    fresh, known = ([], []), ([], [])
    longest = 128
    cache = model.cache(1, longest)
    lengths = draw.sample(range(longest // 2 + 1, longest), rounds)
    _read(model, cache, longest // 2)()
    for length in lengths:
        shape = replace(base, d_ff=8 * draw.randrange(128, 256))
        new = random_model(shape, where, model.dtype)
        for times, run in (
            (fresh, _read(new, new.cache(1, 16), 16)), (known, _read(model, cache, length))
        ):  # fmt: skip
            took = [seconds(run, sync, clock) for _ in range(6)]
            times[0].append(took[0])
            times[1].append(median(took[1:]))
    return [
        Finding("first-run", words, median(first), median(later), "s", ratio(first, later))
        for words, (first, later) in (
            ("a fresh small model, 16 tokens", fresh), ("a new prompt length, warm model", known)
        )
    ]  # fmt: skip


def no_wait(device: str = "cpu", rounds: int = 8) -> list[Finding] | Unavailable:
    """A product on a GPU, timed to the return of the call and to its end. Off: end ÷ return."""
    where = pick_device(device)
    if where.type == "cpu":
        return Unavailable("a CPU returns from a call when the work is done: it takes a GPU")
    sync, n = synchronizer(where), 4096
    run = gemm_probe("fp16", n, n, n, str(where))
    seconds(run, sync, time.perf_counter, 3)
    returned, ended = [], []
    for _ in range(rounds):
        sync()
        begun = time.perf_counter()
        run()
        returned.append(time.perf_counter() - begun)
        sync()
        ended.append(time.perf_counter() - begun)
    off = median_interval([e / r for e, r in zip(ended, returned, strict=True)])
    regime = f"a product of {n} × {n}, {torch.device(where).type}"
    return [Finding("no-wait", regime, median(returned), median(ended), "s", off)]


def _stalled(model: Model, cache, other, text: list[int], answer: int, at: int) -> Iterator[object]:
    """The steps of an answer; before step `at` the engine reads `text` for somebody else."""
    for index, step in enumerate(generate(model, text, answer, cache=cache)):
        if index == at:
            other.clear()
            prefill(model, other, text)
        yield step


def _read(model: Model, cache, length: int) -> Callable[[], object]:
    prompt = ids(length, model.shape.vocab)

    def run() -> None:
        cache.clear()
        prefill(model, cache, prompt)

    return run


def _in_line(count: int) -> str:
    return "nobody in line" if not count else f"{count} in line before it"
