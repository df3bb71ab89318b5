"""Machines side by side: measured sets, nameplates, and the bound they set to a token's time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inferlab import data
from inferlab.lab import standard
from inferlab.lab.intervals import Interval, ratio
from inferlab.lab.plots_map import Place
from inferlab.lab.standard import Standard
from inferlab.theory import counts, hardware, roofline, shapes
from inferlab.theory.shapes import ModelShape
from inferlab.theory.units import bytes_per_weight


@dataclass(frozen=True)
class Step:
    """A decode step that was measured, beside the plain roofline at ceilings of its own minute.

    floor     seconds, median over rounds: the longer of FLOPs ÷ rate and bytes ÷ bandwidth
    measured  seconds, median; over: measured ÷ floor with its interval, round by round
    """

    model: str
    weights: str
    dtype: str
    batch: int
    context: int
    floor: float
    measured: float
    over: Interval


def recorded() -> list[Standard]:
    """Every standard set in data/measurements, the oldest first by its id.

    Raises ValueError, naming the file, for one that was cut or edited.
    """
    sets = []
    for name in data.names():
        if name.startswith("measurements/") and name.endswith(".json"):
            found = read(data.path(name).read_text(encoding="utf-8"), name)
            sets += [found] if found else []
    return sorted(sets, key=lambda s: s.calibration.date)


def read(text: str, name: str) -> Standard | None:
    """The standard set in the text of a file; None where it holds something else.

    Raises ValueError, naming the file, for a set that is not whole.
    """
    content = json.loads(text)
    if not isinstance(content, dict) or content.get("kind") != standard.KIND:
        return None
    try:
        return Standard.from_dict(content)
    except ValueError as fault:
        raise ValueError(f"{name}: {fault}") from None


def place(found: Standard, label: str = "", dtype: str = "") -> Place:
    """A measured machine on the map: read bandwidth and best rate of a product in `dtype`.

    dtype  default: of the model the set was measured with
    """
    ceilings = found.calibration
    return Place(
        label or ceilings.name, ceilings.bandwidth, ceilings.peak_flops(dtype or first(found)), True
    )


def first(found: Standard) -> str:
    """The data type that suits the machine of a set: that of its first decode step."""
    return found.decode[0].step.conditions["dtype"]


def nameplates(ids: Iterable[str]) -> list[Place]:
    """Accelerators as their makers print them, dense, in bf16 or else fp16: not measured."""
    found = []
    for id in ids:
        one = hardware.get(id)
        found.append(Place(_short(one.name), one.bandwidth, one.peak_flops(kind(one)), False))
    return found


def kind(accelerator: hardware.Accelerator) -> str:
    """The 16-bit type an accelerator computes in: bf16 where its sheet has it, else fp16."""
    return "bf16" if "bf16" in accelerator.peaks else "fp16"


def bound(shape: ModelShape, machine, memory: float, dtype: str, context: int) -> float | None:
    """Seconds per token at batch 1 by the plain roofline; None where weights and cache do not fit.

    memory  bytes of the machine. 16-bit weights and cache; no engine is faster at these ceilings.
    """
    cache = (context + 1) * shape.kv_bytes_per_token(dtype)
    if shape.params * bytes_per_weight(dtype) + cache > memory:
        return None
    return roofline.decode_time(
        shape, machine, context=context, weight_dtype=dtype, kv_dtype=dtype, dtype=dtype
    )


def steps(found: Standard) -> list[Step]:
    """The decode steps of a set, each beside the plain roofline at its own ceilings.

    The read of memory is the one that was timed beside the step; the rate of products is the
    calibration's. Models whose shape the zoo does not have are left out.
    """
    out, known = [], shapes.names()
    for pair in found.decode:
        how = pair.step.conditions
        dtype = how["dtype"]
        if how["model"] not in known:
            continue
        batch = [counts.Sequence(1, how["context"])] * how["batch"]
        work = counts.step(shapes.get(how["model"]), batch, weight_dtype=dtype, kv_dtype=dtype)
        arithmetic = work.flops / found.calibration.peak_flops(dtype)
        floors = [
            max(arithmetic, work.bytes_streamed * beside / pair.ceiling_work)
            for beside in pair.ceiling.samples
        ]
        middle = sorted(floors)[len(floors) // 2]
        out.append(
            Step(how["model"], how["weights"], dtype, how["batch"], how["context"], middle,
                 pair.step.value, ratio(pair.step.samples, floors))
        )  # fmt: skip
    return out


def farthest(places: Sequence[Place]) -> tuple[Place, Place]:
    """The machines with the lowest and with the highest ridge point, rate ÷ bandwidth."""
    by_ridge = sorted(places, key=lambda p: p.rate / p.bandwidth)
    return by_ridge[0], by_ridge[-1]


def _short(name: str) -> str:
    """A name without its maker."""
    for maker in ("NVIDIA GeForce ", "NVIDIA ", "AMD Instinct ", "Google "):
        name = name.removeprefix(maker)
    return name
