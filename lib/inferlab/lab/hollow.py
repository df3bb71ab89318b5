"""A model with all its operations and next to no weights: what a pass costs before it reads one."""

from __future__ import annotations

from dataclasses import replace

from inferlab.engine.generate import decode, prefill
from inferlab.engine.load import random_model
from inferlab.engine.model import Model
from inferlab.lab.meters import timeline
from inferlab.theory.shapes import ModelShape

_WIDTH = 8  # the width a head keeps where there is to be nothing to read


def hollow(model: Model) -> Model:
    """Random weights in a shape of the same layers, heads and operations, and next to no width.

    A pass through it costs what a pass costs before a weight is read: the launching of its
    operations. Same device, dtype and kernels as `model`.
    """
    return random_model(narrow(model.shape), model.device, model.dtype, table=model.table)


def narrow(shape: ModelShape, layers: int | None = None) -> ModelShape:
    """`shape` with heads of width 8, as many columns as they need, and `layers` layers."""
    width = shape.n_heads * _WIDTH
    return replace(
        shape, name=f"hollow {shape.name}", n_layers=layers or shape.n_layers, head_dim=_WIDTH,
        d_model=width, d_ff=width, vocab=max(64, shape.n_heads), rope_scaling=None,
    )  # fmt: skip


def hollow_pass(model: Model, past: int, device: str, passes: int = 24) -> float:
    """Seconds of a decode pass of a hollow model, the mean of some in a row."""
    cache = model.cache(1, past + passes + 1)
    prefill(model, cache, [i % model.shape.vocab for i in range(past)])

    def steps():
        for _ in range(passes + 1):
            yield decode(model, cache, [1])

    return timeline(steps(), device)[1].tpot
