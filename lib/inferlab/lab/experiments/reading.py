"""Reading against writing: the time of a token that is read beside that of one that is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from inferlab.engine.generate import generate, prefill
from inferlab.engine.model import Model
from inferlab.lab.intervals import Interval, ratio
from inferlab.lab.meters import timed, timeline
from inferlab.lab.records import Measurement, provenance

_TEXT = 7919  # a prime: ids that jump about the vocabulary; the work does not depend on them


@dataclass(frozen=True)
class Point:
    """One prompt length. `read`, `written`: seconds per token; `ratio`: written ÷ read, paired."""

    prompt: int
    read: Measurement
    written: Measurement
    ratio: Interval


@dataclass(frozen=True)
class Equal:
    """As many tokens written as read. `read`, `written`: seconds for all of them; `ratio`: ÷.

    timeline_seconds  of the one answer, pass by pass, the first being prefill
    """

    tokens: int
    read: Measurement
    written: Measurement
    ratio: Interval
    timeline_seconds: tuple[float, ...]


def ids(count: int, vocab: int) -> list[int]:
    """`count` token ids that are no text, the same every time."""
    return [(_TEXT * i + 104729) % vocab for i in range(count)]


def sweep(
    model: Model,
    prompts: Sequence[int],
    answer: int = 5,
    rounds: int = 8,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Point]:
    """Time per token read and written after prompts of these lengths, in rounds that go around.

    Each round runs every length once: a prompt of P tokens, then `answer` − 1 decode passes.
    """
    cache = model.cache(1, max(prompts) + answer)
    found: dict[int, tuple[list, list]] = {p: ([], []) for p in prompts}
    for index in range(rounds + 1):
        for p in prompts:
            cache.clear()
            steps = generate(model, ids(p, model.shape.vocab), answer, cache=cache)
            line = timeline(steps, str(model.device))[1]
            if index:  # the first round warms up
                found[p][0].append(line.ttft / p)
                found[p][1].append(line.tpot)
        progress(index)
    return [_point(model, p, *samples) for p, samples in found.items()]


def equal(model: Model, tokens: int = 500, parts: int = 8) -> Equal:
    """Read `tokens` tokens and write as many, reading again between the parts of the answer.

    The answer is written once, in `parts` parts; between them the prompt is read anew, so that each
    part has a reading beside it in time. A part's share of the answer is scaled to all of it.
    """
    prompt, where = ids(tokens, model.shape.vocab), str(model.device)
    cache, other = model.cache(1, 2 * tokens), model.cache(1, tokens)
    prefill(model, other, prompt)  # warms up
    times, reads, marks = [], [], [0.0]

    def read_again() -> None:
        other.clear()
        line = timeline(_one(model, other, prompt), where)[1]
        reads.append(line.ttft)

    run, lost = timed(generate(model, prompt, tokens, cache=cache), where), 0.0
    edges = {1 + round((tokens - 1) * (i + 1) / parts) for i in range(parts)}
    for index, (_, moment) in enumerate(run, start=1):
        times.append(moment - lost)
        if index in edges:
            marks.append(times[-1])
            before = run.elapsed()
            read_again()
            lost += run.elapsed() - before
    marks[0], ends = times[0], [1, *sorted(edges)]
    writes = [
        (after - before) * (tokens - 1) / (end - begin)
        for (before, after), (begin, end) in zip(pairwise(marks), pairwise(ends), strict=True)
    ]
    how = _conditions(model, tokens)
    return Equal(
        tokens,
        Measurement.from_samples("reading", reads, "s", how, provenance(where)),
        Measurement.from_samples("writing", writes, "s", how, provenance(where)),
        ratio(writes, reads),
        tuple(times),
    )


def _one(model: Model, cache, prompt):
    yield prefill(model, cache, prompt)


def _point(model: Model, prompt: int, read: list[float], written: list[float]) -> Point:
    how, where = _conditions(model, prompt), provenance(str(model.device))
    return Point(
        prompt,
        Measurement.from_samples("time per token read", read, "s", how, where),
        Measurement.from_samples("time per token written", written, "s", how, where),
        ratio(written, read),
    )


def _conditions(model: Model, prompt: int) -> dict:
    return {
        "model": model.shape.name, "dtype": model.dtype_name, "device": str(model.device),
        "prompt": prompt, "batch": 1, "kernels": model.table,
    }  # fmt: skip
