"""What a request changes in the model, and what comes out twice. `plant` as in `phases`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch

from inferlab.engine.generate import generate, prefill
from inferlab.engine.model import Model
from inferlab.engine.sampling import Sampler, greedy, sampler
from inferlab.lab.counters import flops
from inferlab.lab.experiments import standins

ANSWER = 12


def fingerprints(model: Model) -> dict[str, str]:
    """A SHA-256 of the bytes of every weight tensor, by its name."""
    found = {}
    for name, tensor in model.weights.items():
        flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
        found[name] = hashlib.sha256(flat.numpy()).hexdigest()
    return found


def changed(model: Model, act: Callable[[], object], before: dict[str, str]) -> int:
    """Weight tensors that differ from `before` after `act`, or hold or ask for a gradient."""
    act()
    after = fingerprints(model)
    return sum(
        after[name] != before[name] or t.requires_grad or t.grad is not None
        for name, t in model.weights.items()
    )


def forward_only(model: Model | None = None, plant: str = "") -> dict[str, int]:
    """Weight tensors that a greedy and a sampled request change.

    plant  "learns" moves one weight by one part in a hundred, as a step of training would;
           "gradient" lets one tensor ask for a gradient
    """
    model = model or standins.small("auto")
    before, prompt = fingerprints(model), _prompt(model)
    target = next(t for name, t in model.weights.items() if name.endswith("attn_norm.weight"))
    kept = target.clone()

    def asking(how: Sampler) -> Callable[[], object]:
        def ask() -> None:
            list(generate(model, prompt, ANSWER, sampler=how))
            if plant == "learns":
                target[0] *= 1.01
            if plant == "gradient":
                target.requires_grad_(True)

        return ask

    try:
        return {
            "greedy": changed(model, asking(greedy), before),
            "sampled": changed(model, asking(sampler(seed=1)), before),
        }
    finally:
        target.requires_grad_(False)
        target.copy_(kept)


def same_twice(model: Model | None = None, plant: str = "") -> dict[str, int]:
    """Positions at which two runs differ: greedy, sampled with two seeds, and the logits alone.

    plant  "remembers" lets the second run go on from the first; "one-seed" draws with one seed
    """
    model = model or standins.small("auto")
    prompt = _prompt(model)
    cache = model.cache(1, 2 * (len(prompt) + ANSWER))

    def answer(how: Sampler) -> list[int]:
        if plant != "remembers":
            cache.clear()
        steps = generate(model, prompt, ANSWER, sampler=how, cache=cache)
        return [step.tokens[0] for step in steps]

    def logits() -> torch.Tensor:
        if plant != "remembers":
            cache.clear()
        return prefill(model, cache, prompt, head="all")[0]  # (T, V)

    pairs = {"greedy": (greedy, greedy)}
    pairs["two-seeds"] = sampler(seed=1), sampler(seed=1 if plant == "one-seed" else 2)
    found = {}
    for regime, both in pairs.items():
        cache.clear()
        first, second = (answer(how) for how in both)
        found[regime] = sum(a != b for a, b in zip(first, second, strict=True))
    cache.clear()
    found["logits"] = int((logits() != logits()).any(-1).sum())
    return found


def same_arithmetic(model: Model | None = None, plant: str = "") -> dict[str, float]:
    """FLOPs of a request after others ÷ FLOPs of the same request as the first.

    plant  "remembers" keeps what the others left in the cache
    """
    model = model or standins.small("auto")
    prompt = _prompt(model)
    cache = model.cache(1, 8 * len(prompt) + ANSWER)

    def ask() -> None:
        if plant != "remembers":
            cache.clear()
        list(generate(model, prompt, 4, cache=cache))

    first = flops(ask).total
    for _ in range(3):
        ask()
    return {"later-request": flops(ask).total / first}


def _prompt(model: Model) -> list[int]:
    return model.tokenizer.encode(standins.TEXT)
