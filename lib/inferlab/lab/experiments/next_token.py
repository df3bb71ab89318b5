"""What one pass produces: a distribution over the next token, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from inferlab.engine.generate import decode, prefill
from inferlab.engine.model import Model
from inferlab.engine.sampling import probabilities, sample


@dataclass(frozen=True)
class Candidate:
    """One token that could come next: its text, probability, and share of the draws made."""

    token: int
    piece: str
    probability: float
    share: float


def distribution(model: Model, ids: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
    """p(next token | ids), (vocab,), fp32, on the CPU: softmax(logits / temperature)."""
    logits = prefill(model, model.cache(1, len(ids)), ids)
    return probabilities(logits.float().cpu(), temperature)[0]


def draws(
    model: Model, ids: Sequence[int], count: int, temperature: float = 1.0, seed: int = 0
) -> torch.Tensor:
    """How often each token came in `count` draws from one pass, (vocab,)."""
    logits = prefill(model, model.cache(1, len(ids)), ids).float().cpu()
    generator = torch.Generator().manual_seed(seed)
    chosen = sample(logits.expand(count, -1), temperature, generator=generator)  # (count,)
    return torch.bincount(chosen, minlength=model.shape.vocab)


def candidates(
    model: Model, ids: Sequence[int], count: int, top: int = 10, temperature: float = 1.0,
    seed: int = 0,
) -> list[Candidate]:  # fmt: skip
    """The `top` likeliest tokens with their probability and their share of `count` draws."""
    p = distribution(model, ids, temperature)
    came = draws(model, ids, count, temperature, seed)
    best = p.topk(top).indices.tolist()
    text = [model.tokenizer.piece(i) for i in best]
    return [
        Candidate(i, t if isinstance(t, str) else t.decode("utf-8", "replace"), float(p[i]),
                  int(came[i]) / count)
        for i, t in zip(best, text, strict=True)
    ]  # fmt: skip


def log_probabilities(model: Model, ids: Sequence[int], one_pass: bool = True) -> torch.Tensor:
    """ln p(x_{t+1} | x_≤t) of every token of `ids` but the first, (T − 1,), fp64, on the CPU.

    one_pass  True: all of them from one pass over the text. False: one pass per token. Both must
    agree to the rounding of the dtype; their sum is ln p(x) given the first token.
    """
    ids = list(ids)
    cache = model.cache(1, len(ids))
    if one_pass:
        logits = prefill(model, cache, ids, head="all")[0]  # (T, V)
    else:
        logits = torch.cat([decode(model, cache, [i]) for i in ids])
    logs = logits.double().cpu().log_softmax(-1)[:-1]  # (T − 1, V)
    return logs[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]


def entropy(p: torch.Tensor) -> float:
    """−Σ p·log₂ p of a distribution, in bits: how undecided the model is."""
    kept = p[p > 0].double()
    return float(-(kept * kept.log2()).sum())
