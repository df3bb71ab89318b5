"""Passes, counted where they are made: how many a request takes. `plant` as in `phases`."""

from __future__ import annotations

from inferlab.engine.generate import decode, generate, prefill
from inferlab.engine.model import Model
from inferlab.lab.experiments import standins
from inferlab.lab.verdicts import Case


def passes_to_first_token(model: Model, prompt: int, chunk: int | None = None) -> int:
    """Forward passes from a prompt of so many tokens to the first token of the answer."""
    cache = model.cache(1, prompt + 1)
    next(generate(model, standins.ids(model, prompt), 2, cache=cache, chunk=chunk))
    return cache.passes


def prefill_passes(model: Model | None = None, plant: str = "") -> dict[str, int]:
    """Passes to the first token, for a short prompt and for 256 tokens.

    plant  "chunks" reads 64 tokens a pass; "one-by-one" reads one token a pass
    """
    model = model or standins.small("auto")
    chunk = {"chunks": 64, "one-by-one": 1}.get(plant)
    short, long = (passes_to_first_token(model, prompt, chunk) for prompt in (12, 256))
    return {"this-request": short, "long-prompt": long}


def answer_passes(model: Model, prompt: int, answer: int, plant: str = "") -> int:
    """Decode passes for an answer of so many tokens.

    plant  "reads-the-last" passes the last token through as well; "skips" makes one pass for two
           tokens at the end
    """
    cache = model.cache(1, prompt + answer)
    steps = list(generate(model, standins.ids(model, prompt), answer, cache=cache))
    found = cache.passes - 1
    if plant == "reads-the-last":
        decode(model, cache, [steps[-1].tokens[0]])
        found = cache.passes - 1
    return found - 1 if plant == "skips" else found


def decode_passes(
    model: Model | None = None, short: int = 16, long: int = 200, plant: str = ""
) -> list[Case]:
    """Decode passes for a short and a long answer, beside G and G − 1."""
    model = model or standins.tiny()
    tries = (("short-answer", short), ("long-answer", long))
    return [
        Case(regime, answer_passes(model, 12, g, plant), source=g, ours=g - 1, detail=f"G = {g}")
        for regime, g in tries
    ]


def tokens_passed(model: Model | None = None, plant: str = "") -> list[Case]:
    """Prompt tokens that pass through the model: nothing kept, and a prefix kept from before.

    Counted at the input of each pass. plant  "forgets" clears the cache before the second request
    """
    model = model or standins.small("auto")
    prompt, kept = standins.ids(model, 96), 64
    cache = model.cache(1, len(prompt))
    through = _read(model, cache, prompt)
    cache.lengths = [0 if plant == "forgets" else kept]
    again = _read(model, cache, prompt[cache.lengths[0] :])
    return [
        Case("fresh", through, source=len(prompt), ours=len(prompt)),
        Case("kept-prefix", again, source=len(prompt), ours=len(prompt) - kept),
    ]


def _read(model: Model, cache, tokens: list[int]) -> int:
    """Read `tokens`, and say how many tokens the cache gained: those that passed through."""
    before = cache.lengths[0]
    prefill(model, cache, tokens)
    return cache.lengths[0] - before
