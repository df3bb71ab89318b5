"""Reading against writing: the time of a pass over a prompt beside that of a decode pass.

Each function is one experiment behind a claim: parameters in, {regime: measured} out. `plant` puts
a falsehood into the experiment itself, which the claim must not survive.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.engine.generate import generate
from inferlab.engine.model import Model
from inferlab.lab.experiments import flops, standins
from inferlab.lab.intervals import Interval, ratio
from inferlab.lab.pairs import paired
from inferlab.lab.probes import Probe, gemm_probe
from inferlab.lab.verdicts import Case
from inferlab.theory import counts

ROUNDS = 9


@dataclass(frozen=True)
class Both:
    """Seconds, round by round, per token written and per token read of one prompt."""

    written: tuple[float, ...]
    read: tuple[float, ...]


def read_beside_write(
    model: Model, prompt: int, context: int, rounds: int = ROUNDS, plant: str = ""
) -> Both:
    """A pass over `prompt` tokens beside a decode pass after `context` tokens, each per token.

    plant  "swapped" takes the one for the other; "answer-is-read" reads where it should write, so
           that an answer comes as a prompt goes in: all of its tokens in one pass
    """
    read, write = standins.reader(model, prompt), standins.writer(model, context)
    tokens = {"read": prompt, "written": 1}
    if plant == "swapped":
        read, write = write, read
        tokens = {"read": 1, "written": prompt}
    if plant == "answer-is-read":
        write, tokens["written"] = read, prompt
    pair = paired(write, read, rounds, 1, balance=False, device=str(model.device))
    return Both(
        tuple(t / tokens["written"] for t in pair.ceiling.samples),
        tuple(t / tokens["read"] for t in pair.step.samples),
    )


def reading_is_cheap(
    model: Model | None = None, prompt: int = 256, rounds: int = ROUNDS, plant: str = ""
) -> dict[str, Interval]:
    """Time per token written ÷ time per token read of a prompt of `prompt` tokens."""
    model = model or standins.wide()
    both = read_beside_write(model, prompt, prompt, rounds, plant)
    return {"batch-1": ratio(both.written, both.read)}


def equal_flops(
    model: Model | None = None, tokens: int = 256, rounds: int = ROUNDS, plant: str = ""
) -> list[Case]:
    """P = G = `tokens`: time of G − 1 decode passes ÷ time of prefill, and the same of FLOPs.

    A pass is timed at the mean context of the answer: its time is linear in the context.
    """
    model = model or standins.wide()
    both = read_beside_write(model, tokens, tokens * 3 // 2, rounds, plant)
    time = ratio(both.written, both.read, scale=(tokens - 1) / tokens)
    return [Case("time", time), *flops.write_over_read()]


def dearer_half(
    model: Model | None = None,
    prompt: int = 256,
    short: int = 4,
    rounds: int = ROUNDS,
    plant: str = "",
) -> list[Case]:
    """Time of decode ÷ time of the request, for answers as long as the prompt and of `short`."""
    model = model or standins.wide()
    both = read_beside_write(model, prompt, prompt * 3 // 2, rounds, plant)
    found = []
    for regime, answer in (("even", prompt), ("long-prompt", short)):
        decode = [(answer - 1) * t for t in both.written]
        whole = [d + prompt * r for d, r in zip(decode, both.read, strict=True)]
        detail = f"{model.shape.name}, P = {prompt}, G = {answer}"
        found.append(Case(regime, ratio(decode, whole), detail=detail))
    return found


def prefill_against_compute(
    model: Model | None = None, long: int = 256, short: int = 4, rounds: int = ROUNDS,
    plant: str = "",
) -> dict[str, Interval]:  # fmt: skip
    """FLOP/s of a pass over a prompt ÷ those of a large matrix product beside it.

    plant  "macs" counts a multiply and an add as one; "swapped" times a decode pass instead
    """
    model = model or standins.wide()
    probe, found = product_probe(model), {}
    for regime, prompt in (("long-prompt", long), ("short-prompt", short)):
        step, batch = standins.reader(model, prompt), counts.Sequence(prompt)
        if plant == "swapped":
            step, batch = standins.writer(model, prompt), counts.Sequence(1, prompt)
        work = counts.step(model.shape, [batch]).flops * (0.5 if plant == "macs" else 1)
        where = str(model.device)
        pair = paired(probe, step, rounds, 1, step_work=work, balance=False, device=where)
        found[regime] = pair.efficiency()
    return found


def product_probe(model: Model, size: int = 2048) -> Probe:
    """The matrix product that a model's arithmetic is held against: its dtype, its kernel."""
    kernel = model.table["linear"]["gemm"]
    return gemm_probe(model.dtype_name, size, size, size, str(model.device), kernel)


def cache_or_none(
    model: Model | None = None, long: int = 256, short: int = 8, rounds: int = ROUNDS,
    plant: str = "",
) -> dict[str, Interval]:  # fmt: skip
    """Time of a decode step without a cache ÷ with one, after `long` and `short` tokens.

    plant  "missing-cache": the cache is left out on both sides
    """
    model, found = model or standins.wide(), {}
    for regime, context in (("long-context", long), ("short-context", short)):
        again = standins.rereader(model, context)
        kept = again if plant == "missing-cache" else standins.writer(model, context)
        pair = paired(kept, again, rounds, 1, balance=False, device=str(model.device))
        found[regime] = pair.ratio()
    return found


def first_token(
    model: Model | None = None, prompt: int = 64, ahead: int = 1, rounds: int = 8,
    plant: str = "",
) -> list[Case]:  # fmt: skip
    """Time to the first token ÷ time of prefill alone: nobody waiting, and `ahead` before us.

    The engine serves one request at a time here; each of those ahead writes three tokens.
    plant  "second-token": the clock is read at the second token
    """
    model = model or standins.wide(2)
    tokens, alone = standins.ids(model, prompt), standins.reader(model, prompt)

    def first() -> None:
        steps = generate(model, tokens, 3)
        next(steps)
        if plant == "second-token":
            next(steps)

    def waiting() -> None:
        for _ in range(ahead):
            list(generate(model, tokens, 3))

    def queued() -> None:
        waiting()
        first()

    def against(step) -> Interval:
        where = str(model.device)
        return paired(alone, step, rounds, 1, balance=False, device=where).ratio()

    return [
        Case("idle", against(first), ours=1.0),
        Case("loaded", against(queued), ours=1 + against(waiting).value),
    ]
