"""Users served together: tokens per second of a batch beside those of one user alone.

Functions and `plant` as in `phases`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inferlab.engine.model import Model
from inferlab.lab import clock as clocks
from inferlab.lab.experiments import standins
from inferlab.lab.intervals import Interval, ratio
from inferlab.lab.pairs import paired

CONTEXT, ROUNDS = 64, 12


def throughput(
    model: Model | None = None, batch: int = 8, rounds: int = ROUNDS, plant: str = ""
) -> dict[str, Interval]:
    """Tokens per second of `batch` users in one pass ÷ of one user, paired.

    plant  "one-by-one" serves the users of the batch one after the other; "swapped" exchanges
           batch and single user
    """
    model = model or standins.wide()
    alone, together = standins.writer(model, CONTEXT), _together(model, batch, plant)
    if plant == "swapped":
        alone, together, batch = together, alone, 1 / batch
    pair = paired(alone, together, rounds, 1, balance=False, device=str(model.device))
    return {"batch-8": ratio(pair.ceiling, pair.step, scale=batch)}


def one_of_many(
    model: Model | None = None,
    batches: Sequence[int] = (16, 64),
    rounds: int = ROUNDS,
    plant: str = "",
) -> dict[str, Interval]:
    """Tokens per second of one user ÷ of the best batch tried, paired. `plant` as above."""
    model = model or standins.wide()
    where = str(model.device)
    alone = standins.writer(model, CONTEXT)
    batches = (4,) if plant else batches  # served one by one, many users take long
    steps = {batch: _together(model, batch, plant) for batch in batches}
    best = max(batches, key=lambda batch: batch / _seconds(steps[batch], where))
    pair = paired(alone, steps[best], rounds, 1, balance=False, device=where)
    regime = "this-machine" if model.device.type == "cpu" else "gpu"
    return {regime: ratio(pair.step, pair.ceiling, scale=1 / best)}


def _together(model: Model, batch: int, plant: str) -> Callable[[], object]:
    if plant != "one-by-one":
        return standins.writer(model, CONTEXT, batch)
    alone = standins.writer(model, CONTEXT)
    return lambda: [alone() for _ in range(batch)]


def _seconds(step: Callable[[], object], device: str) -> float:
    step()
    return clocks.seconds(step, clocks.synchronizer(device), clocks.core_clock(device), 2)
