"""The four verbs: prefill, decode, sample, and generate, which is made of the other three.

No text, no tokenizer and no clock here: `generate` yields one step at a time, so whoever wants
times, text or a progress bar stands outside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inferlab.engine.kvcache import KVCache, NoCache
from inferlab.engine.model import Model, forward
from inferlab.engine.sampling import Sampler, greedy

Prompt = Sequence[int]


@dataclass(frozen=True)
class Step:
    """One forward pass of a generation and the tokens it produced.

    `phase` is "prefill" or "decode"; `tokens` the new token of each sequence (None once it has
    ended); `new` the tokens each sequence brought to the pass; `past` those it had in the cache;
    `logits` (B, V); `ended` says which sequences are done after this step.
    """

    phase: str
    tokens: tuple[int | None, ...]
    new: tuple[int, ...]
    past: tuple[int, ...]
    logits: Tensor
    ended: tuple[bool, ...]


def prefill(
    model: Model, cache: KVCache | NoCache, prompts: Prompt | Sequence[Prompt],
    chunk: int | None = None, head: str = "last",
) -> Tensor:  # fmt: skip
    """Read the prompts in one pass (or in passes of at most `chunk` tokens each).

    One list of ids, or one per sequence of the cache, of any lengths. Returns the logits that
    follow each prompt, (B, V); with head="all" of every position, (B, T, V) (no chunks then).
    Raises ValueError for an empty prompt, an id outside the vocabulary, a prompt that does not fit.
    """
    rows = _rows(prompts)
    _check(model, cache, rows, chunk, head)
    step = chunk or max(map(len, rows))
    logits, starts = None, range(0, max(map(len, rows)), step)
    if len(starts) > 1 and len({len(row) for row in rows}) > 1:
        raise ValueError("prompts of unequal length are read in one pass: leave chunk out")
    for start in starts:
        part = [row[start : start + step] for row in rows]
        width = max(map(len, part))
        padded = [list(row) + [0] * (width - len(row)) for row in part]
        tokens = torch.tensor(padded, device=model.device)  # (B, T)
        logits = forward(model, tokens, cache, [len(row) for row in part], head)
    return logits


def decode(model: Model, cache: KVCache | NoCache, tokens: Tensor | Sequence[int]) -> Tensor:
    """Append one token to each sequence, (B,); returns the logits that follow it, (B, V)."""
    tokens = torch.as_tensor(tokens, device=model.device).reshape(-1, 1)  # (B, 1)
    return forward(model, tokens, cache)


def generate(
    model: Model,
    prompts: Prompt | Sequence[Prompt],
    max_tokens: int,
    *,
    sampler: Sampler = greedy,
    stop: Collection[int] = (),
    cache: KVCache | NoCache | None = None,
    chunk: int | None = None,
) -> Iterator[Step]:
    """Prefill, then decode until every sequence has `max_tokens` tokens or wrote one of `stop`.

    Prefill already gives the first token, so G tokens take 1 prefill and G − 1 decode passes. A
    sequence that has ended stays in the batch, as in static batching, and its tokens are None.
    Without `cache` one is made that just fits.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens={max_tokens}: ask for at least 1 token")
    rows = _rows(prompts)
    if not all(rows):
        raise ValueError("the prompt is empty: give at least one token (a BOS token will do)")
    if cache is None:
        longest = max(map(len, rows)) + max_tokens - 1  # the last token is never read back
        _check_context(model, longest, max(map(len, rows)))
        cache = model.cache(len(rows), longest)
    ended = [False] * len(rows)
    past, new = tuple(cache.lengths), tuple(map(len, rows))
    logits = prefill(model, cache, rows, chunk)
    for index in range(max_tokens):
        chosen = sampler(logits)
        ids = chosen.tolist()
        shown = tuple(None if done else i for i, done in zip(ids, ended, strict=True))
        last = index == max_tokens - 1
        ended = [done or last or i in stop for i, done in zip(ids, ended, strict=True)]
        phase = "decode" if index else "prefill"
        yield Step(phase, shown, new, past, logits, tuple(ended))
        if all(ended):
            return
        past, new = tuple(cache.lengths), (1,) * len(rows)
        logits = decode(model, cache, chosen)


def _rows(prompts: Prompt | Sequence[Prompt]) -> list[list[int]]:
    if isinstance(prompts, Tensor):
        prompts = prompts.tolist()
    prompts = list(prompts)
    single = not prompts or not isinstance(prompts[0], Sequence | Tensor)
    return [[int(i) for i in row] for row in ([prompts] if single else prompts)]


def _check(model: Model, cache: KVCache | NoCache, rows, chunk, head) -> None:
    if not all(rows):
        raise ValueError("the prompt is empty: give at least one token (a BOS token will do)")
    for row in rows:
        wrong = next((i for i in row if not 0 <= i < model.shape.vocab), None)
        if wrong is not None:
            raise ValueError(
                f"token id {wrong} is outside the vocabulary of {model.shape.name}, "
                f"0 to {model.shape.vocab - 1}: encode the text with this model's tokenizer"
            )
    if len(rows) != cache.batch:
        raise ValueError(f"{len(rows)} prompts for a cache of {cache.batch} sequences")
    if chunk is not None and (chunk < 1 or head == "all"):
        raise ValueError(f"chunk={chunk} with head={head!r}: chunks of 1 or more, head 'last'")


def _check_context(model: Model, longest: int, prompt: int) -> None:
    limit = model.shape.max_context
    if longest > limit:
        room = limit - prompt + 1
        advice = (
            f"shorten the prompt to {limit} tokens or fewer" if room < 1
            else f"ask for at most {room} new tokens"
        )  # fmt: skip
        raise ValueError(
            f"a prompt of {prompt} tokens and {longest - prompt + 1} new ones were asked for; "
            f"{model.shape.name} was trained for {limit}: {advice}"
        )
