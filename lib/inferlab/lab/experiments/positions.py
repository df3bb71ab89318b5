"""What depends on what in a text, and what can be had at once. `plant` as in `phases`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from inferlab.engine.generate import decode, generate, prefill
from inferlab.engine.kvcache import KVCache, NoCache
from inferlab.engine.model import Model
from inferlab.lab.experiments import standins

AT = 8  # the position whose token is exchanged
LIST = "One, two, three, four, five, six. One, two, three, four, five, six. One, two, three,"


class AllSee(KVCache):
    """A cache in whose steps every token sees all tokens of the step, later ones too."""

    @property
    def mask(self) -> Tensor | None:
        return None

    @property
    def causal(self) -> bool:
        return False


def log_probabilities(model: Model, ids: Sequence[int], causal: bool = True) -> Tensor:
    """ln p(next token) after each token of `ids`, (T, V), from one pass."""
    kind = KVCache if causal else AllSee
    cache = kind(model.shape, 1, len(ids), model.dtype, model.device)
    return prefill(model, cache, ids, head="all")[0].float().log_softmax(-1)


def moved(model: Model, ids: Sequence[int], at: int, causal: bool = True) -> Tensor:
    """Largest change of ln p at each position, (T,), when the token at `at` is exchanged."""
    other = list(ids)
    other[at] = (other[at] + 1) % model.shape.vocab
    before, after = (log_probabilities(model, x, causal) for x in (ids, other))
    return (before - after).abs().amax(-1)  # (T,)


def later_positions(model: Model | None = None, plant: str = "") -> dict[str, float]:
    """Share of the positions from t on whose distribution changes when the token at t does.

    plant  "same-token" exchanges nothing; "forgetful" lets no position see the one before it
    """
    model = model or standins.small()
    ids = _text(model)
    if plant == "same-token":
        change = torch.zeros(len(ids))
    elif plant == "forgetful":
        alone = [moved(model, [i], 0) if at == AT else torch.zeros(1) for at, i in enumerate(ids)]
        change = torch.cat(alone)
    else:
        change = moved(model, ids, AT)
    return {"causal-model": float((change[AT:] > 1e-4).float().mean())}


def earlier_positions(model: Model | None = None, plant: str = "") -> dict[str, int]:
    """Positions before t whose output changes when the token at t is exchanged, with the causal
    mask and without it.

    plant  "not-causal" takes the mask away on both sides; "causal" on neither
    """
    model = model or standins.small()
    ids = _text(model)

    def count(causal: bool) -> int:
        return int((moved(model, ids, AT, causal)[:AT] > 0).sum())

    return {"causal": count(plant != "not-causal"), "not-causal": count(plant == "causal")}


def at_once(model: Model | None = None, plant: str = "") -> dict[str, int]:
    """Positions of a text at which one pass finds another likeliest next token than a pass for
    each token does.

    plant  "not-causal" lets the one pass see what is to come
    """
    model = model or standins.small()
    ids = _text(model)
    cache = model.cache(1, len(ids))
    one_by_one = torch.cat([decode(model, cache, [i]) for i in ids]).argmax(-1)  # (T,)
    together = log_probabilities(model, ids, plant != "not-causal").argmax(-1)
    return {"fp32": int((one_by_one != together).sum())}


def with_and_without_cache(model: Model | None = None, plant: str = "") -> dict[str, int]:
    """Tokens of a greedy answer that come out otherwise when no keys and values are kept.

    plant  "stale" keeps the keys and values of another text
    """
    model = model or standins.small()
    ids, count = _text(model), 16

    def answer(cache: KVCache | NoCache) -> list[int]:
        prefill(model, cache, ids[:-1])
        if plant == "stale" and isinstance(cache, KVCache):
            cache.k.normal_(generator=torch.Generator().manual_seed(0))
        return [s.tokens[0] for s in generate(model, ids[-1:], count, cache=cache)]

    room = len(ids) + count
    kept, none = answer(model.cache(1, room)), answer(model.no_cache(1, room))
    return {"greedy": sum(a != b for a, b in zip(kept, none, strict=True))}


def guessed(
    model: Model, ids: Sequence[int], count: int, width: int = 6, verify: bool = True
) -> tuple[list[int], int]:
    """A greedy answer of `count` tokens and the passes it took after prefill, with guesses.

    What followed the last three tokens where they stood before in the text is guessed to follow
    again, up to `width` tokens; one pass computes the likeliest token after each of them, and
    those guesses are kept that equal it, and the token after them. Without a guess a pass gives
    one token. verify=False keeps every guess. Source: Saxena, prompt lookup decoding (2023).
    """
    cache = model.cache(1, len(ids) + count + width)
    text = [*ids, int(prefill(model, cache, ids).argmax(-1))]
    passes, cache.passes = 0, 0
    while len(text) < len(ids) + count:
        guess = _guess(text, width)
        at = cache.lengths[0]
        best = prefill(model, cache, [text[-1], *guess], head="all")[0].argmax(-1).tolist()
        right = 0
        while right < len(guess) and (guess[right] == best[right] or not verify):
            right += 1
        text += [*guess[:right], best[right]]
        cache.lengths = [at + right + 1]
        passes = cache.passes
    return text[len(ids) : len(ids) + count], passes


def guesses(model: Model | None = None, plant: str = "") -> dict[str, float]:
    """Passes per token of plain greedy decoding and of decoding with verified guesses, and the
    positions at which the two texts differ.

    plant  "unverified" keeps every guess; "no-guess" guesses nothing
    """
    model = model or standins.small()
    ids, count = model.tokenizer.encode(LIST), 32
    cache = model.cache(1, len(ids) + count)
    plain = [s.tokens[0] for s in generate(model, ids, count, cache=cache)]
    width = 0 if plant == "no-guess" else 6
    text, passes = guessed(model, ids, count, width, plant != "unverified")
    return {
        "step-by-step": cache.passes / count,
        "verified-guesses": (1 + passes) / count,
        "same-text": sum(a != b for a, b in zip(plain, text, strict=True)),
    }


def _guess(text: list[int], width: int) -> list[int]:
    key = text[-3:]
    for at in range(len(text) - 4, 1, -1):
        if text[at - 2 : at + 1] == key:
            return text[at + 1 : at + 1 + width]
    return []


def _text(model: Model) -> list[int]:
    return model.tokenizer.encode(standins.TEXT)
