"""Writing against memory: a decode pass beside a read of memory, in every dtype.

Functions and `plant` as in `phases`.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from inferlab.engine.model import Model
from inferlab.lab.experiments import phases, standins
from inferlab.lab.experiments.bytes import by_clock, step, weights
from inferlab.lab.intervals import Interval, ratio
from inferlab.lab.pairs import Paired, paired
from inferlab.lab.probes import Probe
from inferlab.lab.traffic import traffic
from inferlab.lab.verdicts import Case
from inferlab.theory import counts

ROUNDS = 15


def step_against_reading(
    model: Model,
    context: int,
    batch: int = 1,
    rounds: int = ROUNDS,
    plant: str = "",
    probe: Probe | None = None,
) -> Paired:
    """A decode pass beside a read of memory; the works are the bytes streamed and the bytes read.

    probe  default the read of one row's product, as the engine reads
    plant  "both-ways" counts the bytes of the read as if they were written as well; "half" counts
           every second of them; "swapped" reads a prompt instead of writing; "twice" makes the
           pass two times: it moves 2N·b
    """
    write = standins.writer(model, context, batch)
    if plant == "swapped":
        write = standins.reader(model, 64)
    once = write
    if plant == "twice":
        write = lambda: (once(), once())  # noqa: E731
    sequences = [counts.Sequence(1, context)] * batch
    dtype = model.dtype_name
    work = counts.step(model.shape, sequences, weight_dtype=dtype, kv_dtype=dtype).bytes_streamed
    where = str(model.device)
    probe = probe or standins.memory_read(where)
    probe = replace(probe, work=probe.work * {"both-ways": 2, "half": 0.5}.get(plant, 1))
    return paired(probe, write, rounds, 1, step_work=work, balance=batch == 1, device=where)


def decode_against_memory(
    model: Model | None = None, rounds: int = ROUNDS, plant: str = ""
) -> dict[str, Interval]:
    """Bytes that a decode pass moves per second ÷ read bandwidth beside it, in three regimes."""
    model = model or standins.wide()
    tiny = standins.tiny(device=str(model.device))
    return {
        "large-model": step_against_reading(model, 64, 1, rounds, plant).efficiency(),
        "tiny-model": step_against_reading(tiny, 64, 1, rounds).efficiency(),
        "large-batch": step_against_reading(model, 64, 64, 8).efficiency(),
    }


def idle_arithmetic(
    model: Model | None = None, rounds: int = ROUNDS, plant: str = ""
) -> dict[str, Interval]:
    """FLOP/s of a decode pass ÷ those of a large matrix product beside it: MFU of that product.

    plant  "swapped" reads a prompt of 64 tokens instead
    """
    model = model or standins.wide()
    step, batch = standins.writer(model, 64), counts.Sequence(1, 64)
    if plant == "swapped":
        step, batch = standins.reader(model, 64), counts.Sequence(64)
    work, where = counts.step(model.shape, [batch]).flops, str(model.device)
    probe = phases.product_probe(model)
    return {"batch-1": paired(probe, step, rounds, 1, step_work=work, device=where).efficiency()}


def bytes_per_step(model: Model | None = None, rounds: int = ROUNDS, plant: str = "") -> list[Case]:
    """Bytes of weights that one decode pass takes in ÷ N·b: watched as it runs, and by the clock.

    By the clock: what could have been read in the time of the pass, at the fastest read bandwidth
    beside it, ÷ N·b. More than that cannot have been read (`bytes.by_clock`).
    """
    model = model or standins.wide()
    where = str(model.device)
    narrow = [standins.tiny(dtype, where) for dtype in ("fp32", "bf16")]
    counted = [Case(m.dtype_name, weights_taken(m, plant), detail=m.shape.name) for m in narrow]
    pair = step_against_reading(model, 64, 1, rounds, plant, standins.fastest_read(where))
    bound = ratio(pair.step, pair.ceiling, pair.ceiling_work / weights(model))
    return [*counted, *by_clock(bound, f"{model.shape.name}, {model.dtype_name}")]


def weights_taken(model: Model, plant: str = "") -> float:
    """Bytes that the operations of one decode pass take from the weights, ÷ N·b, as they run."""
    write, cache = step(model)
    again = plant == "twice"
    act = (lambda: (write(), write())) if again else write
    return traffic(act, model, cache).weights / weights(model)


def fewer_bits(
    model: Model | None = None, rounds: int = 24, plant: str = ""
) -> dict[str, Interval]:
    """Time of a decode pass with the wider weights ÷ with the narrower, paired.

    int8: every product reads 8-bit rows with one scale each (torch's weight-only kernel).
    plant  "same" takes the wider weights twice; "swapped" exchanges them
    """
    middle = model or standins.wide(dtype="bf16")
    where, layers = str(middle.device), middle.shape.n_layers
    steps = {
        "fp32": standins.writer(standins.wide(layers, "fp32", where), 64),
        "bf16": standins.writer(middle, 64),
        "int8": standins.writer(eight_bits(middle), 64),
    }
    found = {}
    for wide, narrow in (("fp32", "bf16"), ("bf16", "int8")):
        pair = (steps[narrow], steps[wide])
        pair = {"same": pair[1:] * 2, "swapped": pair[::-1]}.get(plant, pair)
        both = paired(*pair, rounds, 1, balance=False, device=where)
        found[f"{narrow}-for-{wide}"] = both.ratio()
    return found


class _EightBits:
    """A `kernels.Linear` whose weight is int8 (out, in), with one bf16 scale a row."""

    def __init__(self, weight: torch.Tensor) -> None:
        scale = weight.abs().amax(1).float() / 127  # (out,)
        self.weight = (weight.float() / scale[:, None]).round().to(torch.int8)
        self.scale = scale.to(weight.dtype)

    def __call__(self, x: torch.Tensor, kind: str) -> torch.Tensor:  # (..., in) -> (..., out)
        rows = x.reshape(-1, x.shape[-1])
        out = torch.ops.aten._weight_int8pack_mm(rows, self.weight, self.scale)
        return out.view(*x.shape[:-1], -1)


def eight_bits(model: Model) -> Model:
    """The same model with every product in 8-bit weights. Its outputs are rounded, as they are."""
    weights = object.__new__(type(model.weights))
    weights.__dict__ |= model.weights.__dict__
    weights.linears = {name: _EightBits(x.weight) for name, x in model.weights.linears.items()}
    weights.layers = [weights._layer(f"blk.{i}.") for i in range(model.shape.n_layers)]
    return replace(model, weights=weights)
