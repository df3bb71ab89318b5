"""Choosing a token from logits: pure functions of the logits and a generator of random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Sampler = Callable[[Tensor], Tensor]


def greedy(logits: Tensor) -> Tensor:
    """The most probable token of each row: (B, V) -> (B,)."""
    return logits.argmax(-1)


def probabilities(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Tensor:
    """softmax(logits / temperature) after the filters, in fp32: (B, V) -> (B, V), rows sum to 1.

    The filters act in this order, each on what the one before left: top_k keeps the k largest
    (ties with the k-th stay); top_p the smallest set of largest probabilities that reaches p
    (arXiv 1904.09751); min_p those of at least min_p times the largest (arXiv 2407.01082).
    Raises ValueError for a value outside its range.
    """
    _check(logits.shape[-1], temperature, top_k, top_p, min_p)
    scores = logits.float() / temperature
    if top_k is not None and top_k < scores.shape[-1]:
        least = scores.topk(top_k, -1).values[..., -1:]
        scores = scores.masked_fill(scores < least, -math.inf)
    if top_p is not None and top_p < 1:
        order = torch.sort(scores, dim=-1, descending=True, stable=True)  # ties by id, as argmax
        share = order.values.softmax(-1)
        drop = share.cumsum(-1) - share >= top_p  # what stands before it reaches p already
        scores = scores.masked_fill(drop.scatter(-1, order.indices, drop), -math.inf)
    out = scores.softmax(-1)
    if min_p is not None:
        out = out.masked_fill(out < min_p * out.amax(-1, keepdim=True), 0)
        out = out / out.sum(-1, keepdim=True)
    return out


def sample(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw one token per row from `probabilities`; temperature 0 is greedy. (B, V) -> (B,)."""
    if temperature == 0:
        _check(logits.shape[-1], 1.0, top_k, top_p, min_p)
        return greedy(logits)
    weights = probabilities(logits, temperature, top_k, top_p, min_p)
    return torch.multinomial(weights, 1, generator=generator)[..., 0]


def sampler(seed: int | None = None, device: torch.device | str = "cpu", **settings) -> Sampler:
    """`sample` with its settings bound and a generator of its own: same seed, same draws."""
    generator = torch.Generator(device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return lambda logits: sample(logits, generator=generator, **settings)


def _check(vocab: int, temperature: float, top_k, top_p, min_p) -> None:
    if not temperature > 0 or math.isinf(temperature):
        raise ValueError(f"temperature={temperature}: a positive number, or 0 for greedy in sample")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k={top_k}: keep at least 1 of the {vocab} tokens, or None for all")
    for name, value in (("top_p", top_p), ("min_p", min_p)):
        if value is not None and not 0 < value <= 1:
            raise ValueError(f"{name}={value}: a share in (0, 1], or None")
