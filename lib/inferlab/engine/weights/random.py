"""Random weights of any shape, made where they are used: for time and memory, never for text."""

from __future__ import annotations

import torch

from inferlab.engine.weights import contract
from inferlab.theory import shapes

STD = 0.02
"""Standard deviation of the linear weights: what Llama, Qwen and most others start from
(`initializer_range` of their configurations)."""

DRAWN = 2**20 - 3
"""Numbers that are drawn; a prime, so that no two rows of a matrix are the same."""


def random_weights(
    shape: shapes.ModelShape, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Weights for `shape` on `device` in `dtype`, GGUF name -> tensor: w ~ N(0, 0.02²), norms 1.

    `DRAWN` numbers are drawn, and each tensor repeats them from a place of its own: a CPU copies
    faster than it draws, and the time of a pass depends on neither. Each tensor is made on the
    device in its final type, so nothing passes through the CPU. The same seed gives the same
    weights on the same kind of device. Raises ValueError for a shape that the engine does not
    compute.
    """
    contract.check_shape(shape, shape.name)
    generator = torch.Generator(device=device).manual_seed(seed)
    drawn = torch.empty(DRAWN, dtype=dtype, device=device).normal_(0.0, STD, generator=generator)
    places = torch.Generator().manual_seed(seed)
    weights = {}
    for name, dims in shapes.weight_shapes(shape).items():
        weight = torch.empty(dims, dtype=dtype, device=device)
        if name.endswith("norm.weight"):
            weights[name] = weight.fill_(1.0)
        else:
            start = int(torch.randint(DRAWN, (), generator=places))
            weights[name] = _repeat(drawn, start, weight)
    return weights


def _repeat(numbers: torch.Tensor, start: int, into: torch.Tensor) -> torch.Tensor:
    """`into`, filled with `numbers` (n,) from place `start` on, over and over."""
    flat, n = into.view(-1), len(numbers)
    first, flat = flat[: n - start], flat[n - start :]
    first.copy_(numbers[start : start + len(first)])
    whole = len(flat) // n * n
    flat[:whole].view(-1, n).copy_(numbers)
    flat[whole:].copy_(numbers[: len(flat) - whole])
    return into
