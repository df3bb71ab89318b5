"""The pace of an answer: a decode pass late in a context, and one that another's prompt holds up,
beside a pass at the start. Functions and `plant` as in `phases`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inferlab.engine.model import Model
from inferlab.lab.experiments import standins
from inferlab.lab.experiments.bytes import context_as_heavy_as_weights
from inferlab.lab.intervals import Interval, ratio
from inferlab.lab.pairs import paired
from inferlab.lab.verdicts import Case
from inferlab.theory import counts

START, SHORT, PROMPT, ROUNDS = 16, 256, 32, 15


def steady_pace(
    model: Model | None = None,
    long: Model | None = None,
    rounds: int = ROUNDS,
    plant: str = "",
) -> list[Case]:
    """Time of a decode pass ÷ of a pass after START tokens of the same model, in three regimes.

    We say, after SHORT tokens: as the bytes of both passes. Where the keys and values weigh as much
    as the weights: on the straight line through the start and half of that context, since a pass
    grows by the same bytes with every token. While a prompt is read: longer by the pass that reads
    it.

    long   the model with the long context; default `standins.keyed`, of which that is some thousand
           tokens
    plant  "forgets" leaves the long context at its start; "nobody" reads no prompt; "steep" lets
           the line rise twice as fast
    """
    model = model or standins.slim(8)
    start, read = standins.writer(model, START), standins.reader(model, PROMPT)
    waits = start if plant == "nobody" else lambda: (read(), start())
    short = _beside(model, start, standins.writer(model, SHORT), 2 * rounds)  # 5 % apart
    held_up, reading = _in_turn(model, start, (waits, read), rounds)
    return [
        Case("short-context", short, ours=_bytes(model, SHORT) / _bytes(model, START)),
        _late(long or standins.keyed(), rounds, plant),
        Case("beside-a-prefill", held_up, ours=1 + reading.value, detail=f"P = {PROMPT}"),
    ]


def _late(model: Model, rounds: int, plant: str) -> Case:
    whole = round(context_as_heavy_as_weights(model.shape, model.dtype_name, model.dtype_name))
    half, start = whole // 2, standins.writer(model, START)
    end = START if plant == "forgets" else whole
    steps = [standins.writer(model, context) for context in (end, half)]
    late, middle = _in_turn(model, start, steps, rounds)
    slope = (middle.value - 1) / (half - START) * (2 if plant == "steep" else 1)
    line = 1 + slope * (whole - START)
    return Case("long-context", late, ours=line, detail=f"{model.shape.name}, {whole:,} tokens")


def _beside(
    model: Model, start: Callable[[], object], step: Callable[[], object], rounds: int
) -> Interval:
    """Time of the step ÷ time of the pass at the start, paired."""
    (found,) = _in_turn(model, start, (step,), rounds, 1)
    return found


def _in_turn(
    model: Model,
    start: Callable[[], object],
    steps: Sequence[Callable[[], object]],
    rounds: int,
    blocks: int = 3,
) -> list[Interval]:
    """The same for each of `steps`, one block of rounds of each after the other, `blocks` times:
    reading memory and computing drift apart within seconds, and the steps are compared.
    """
    above: list[list[float]] = [[] for _ in steps]
    below: list[list[float]] = [[] for _ in steps]
    for _ in range(blocks):
        for index, step in enumerate(steps):
            pair = paired(
                start, step, -(-rounds // blocks), 1, balance=False, device=str(model.device)
            )
            above[index] += pair.step.samples
            below[index] += pair.ceiling.samples
    return [ratio(*samples) for samples in zip(above, below, strict=True)]


def _bytes(model: Model, context: int) -> float:
    kinds = {"weight_dtype": model.dtype_name, "kv_dtype": model.dtype_name}
    return counts.step(model.shape, [counts.Sequence(1, context)], **kinds).bytes_streamed
