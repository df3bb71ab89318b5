"""Random weights of any shape, made where they are used: for time and memory, never for text."""

from __future__ import annotations

import torch

from inferlab.engine.weights import contract
from inferlab.theory import shapes

STD = 0.02
"""Standard deviation of the linear weights: what Llama, Qwen and most others start from
(`initializer_range` of their configurations)."""


def random_weights(
    shape: shapes.ModelShape, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Weights for `shape` on `device` in `dtype`, GGUF name -> tensor: w ~ N(0, 0.02²), norms 1.

    Each tensor is made on the device in its final type, so nothing passes through the CPU. The same
    seed gives the same weights on the same kind of device. Raises ValueError for a shape that the
    engine does not compute.
    """
    contract.check_shape(shape, shape.name)
    generator = torch.Generator(device=device).manual_seed(seed)
    weights = {}
    for name, dims in shapes.weight_shapes(shape).items():
        weight = torch.empty(dims, dtype=dtype, device=device)
        if name.endswith("norm.weight"):
            weights[name] = weight.fill_(1.0)
        else:
            weights[name] = weight.normal_(0.0, STD, generator=generator)
    return weights
