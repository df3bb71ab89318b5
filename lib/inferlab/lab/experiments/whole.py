"""A request beside the sum of its tokens, each at the price of one that is read or written.

Functions and `plant` as in `phases`.
"""

from __future__ import annotations

from collections.abc import Callable

from inferlab.engine.generate import decode, generate, prefill
from inferlab.engine.model import Model
from inferlab.lab.experiments import standins
from inferlab.lab.pairs import paired
from inferlab.lab.verdicts import Case

PROMPT, ANSWER, ROUNDS = 160, 8, 8


def request_and_parts(
    model: Model | None = None,
    prompt: int = PROMPT,
    answer: int = ANSWER,
    rounds: int = ROUNDS,
    plant: str = "",
) -> list[Case]:
    """Seconds of a request ÷ (P × time per token read + G × time per token written), three times.

    Alone; with one request ahead of it, as near capacity; with seven eighths of its prompt in the
    cache. The prices are of a prompt of this length and of a pass after it.

    plant  "free-reading" and "free-writing" leave one of the prices out; "forgets" reads the kept
           part of the prompt again
    """
    model = model or standins.slim()
    tokens, kept = standins.ids(model, prompt), prompt * 7 // 8
    read, write = standins.reader(model, prompt), standins.writer(model, prompt)

    def parts() -> None:
        if plant != "free-reading":
            read()
        for _ in range(0 if plant == "free-writing" else answer):
            write()

    def alone() -> None:
        for _ in generate(model, tokens, answer):
            pass

    def queued() -> None:
        alone()
        alone()

    regimes = {
        "alone": (alone, f"P = {prompt}, G = {answer}"),
        "queued": (queued, "one request ahead"),
        "cached-prefix": (
            _continued(model, tokens, 0 if plant == "forgets" else kept, answer),
            f"{kept} of {prompt} tokens in the cache",
        ),
    }
    where = str(model.device)
    return [
        Case(name, paired(parts, run, rounds, 1, balance=False, device=where).ratio(), detail=told)
        for name, (run, told) in regimes.items()
    ]


def _continued(model: Model, tokens: list[int], kept: int, answer: int) -> Callable[[], object]:
    """The request where the keys and values of its first `kept` tokens are in the cache."""
    cache = model.cache(1, len(tokens) + answer)
    if kept:
        prefill(model, cache, tokens[:kept])

    def run() -> None:
        cache.lengths = [kept]
        logits = prefill(model, cache, tokens[kept:])
        for _ in range(answer - 1):
            logits = decode(model, cache, [int(logits[0].argmax())])

    return run
