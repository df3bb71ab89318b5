"""Does the predictor know machines it has not seen: fits to published steps, tested on others.

A fit belongs to one machine and one serving program. Its constants are few: one set per phase for
all batches, lengths and data types of that machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from inferlab.lab.fitting import Row, fit
from inferlab.lab.points import Point, machine_of, value
from inferlab.lab.published import Case
from inferlab.theory import hardware, roofline
from inferlab.theory.additive import Constants, Fitted
from inferlab.theory.hardware import Accelerator

FREE = {
    "decode": ("beta", "step", "layer", "beta_kv", "phi", "phi_attention"),
    "prefill": ("phi", "beta", "step", "layer", "beta_act"),
}
"""Constants of a serving program on a GPU. The order says who takes a time that rows do not tell
apart: what grows with the model before what is fixed, a step before its layers. Attention in decode
is no matrix product (one row) and has a share of its own; in prefill the activations do not fit in
the caches."""

PARALLEL = ("allreduce", "link")
"""Constants of tensor parallelism, fitted to rows of several GPUs with the others as of one."""


@dataclass(frozen=True)
class Held:
    """A case with the time predicted for it by constants that have not seen it."""

    case: Case
    predicted: float
    machine: Fitted

    @property
    def error(self) -> float:
        """(predicted − published) / published."""
        return self.predicted / self.case.seconds - 1


def constants(cases: Iterable[Case], resamples: int = 0) -> Fitted:
    """Constants of the one machine and program of these cases, from its single-GPU single steps.

    Steps of several tokens through a mixture of experts are left out: which experts they read is
    not known. Raises ValueError for no step, or for steps of several machines or programs.
    """
    steps = [c for c in cases if c.n_gpus == 1 and _countable(c)]
    machine, name = _one(steps)
    return fit(
        _rows(steps), machine, FREE, Constants(), by_path=False, resamples=resamples, name=name
    )


def parallel_constants(cases: Iterable[Case], resamples: int = 0) -> Fitted:
    """The same with the time of communication, from the steps of several GPUs, as far as known."""
    cases = list(cases)
    single = constants(cases, resamples)
    steps = [c for c in cases if c.n_gpus > 1 and _countable(c)]
    machine, name = _one(steps)
    found = {}
    for (phase, path), base in single.constants.items():
        rows = [row for row in _rows(steps) if row.phase == phase]
        free = {phase: PARALLEL}
        more = fit(rows, machine, free, base, by_path=False, resamples=resamples)
        both = more.constants[phase, path]
        found[phase, path] = replace(both, ranges={**base.ranges, **both.ranges})
    return Fitted(machine, found, name)


def leave_one_model_out(cases: Iterable[Case]) -> list[Held]:
    """Every single-GPU case whose machine and program have other models, predicted from those."""
    return hold_out([c for c in cases if c.n_gpus == 1], by=lambda c: c.shape)


def hold_out(cases: Iterable[Case], by: Callable[[Case], object]) -> list[Held]:
    """Each group of `by` predicted by constants of the other groups of its machine and program.

    A group is left out of the result where the other groups hold no step of its phase.
    """
    made, stacks = [], {}
    for c in cases:
        stacks.setdefault((c.machine, c.stack), []).append(c)
    for mine in stacks.values():
        for group in dict.fromkeys(by(c) for c in mine):
            seen = [c for c in mine if by(c) != group]
            made += transfer(seen, [c for c in mine if by(c) == group])
    return made


def transfer(seen: Iterable[Case], asked: Iterable[Case]) -> list[Held]:
    """`asked` predicted by the constants of `seen`, where those have every phase that it takes."""
    seen = [c for c in seen if c.n_gpus == 1 and _countable(c)]
    if not seen:
        return []
    machine = constants(seen)
    phases = {key[0] for key in machine.constants}
    return [
        Held(c, c.predicted(machine), machine)
        for c in asked
        if all(row.phase in phases for _, row in c.parts)
    ]


def fp16_from_fp8(cases: Iterable[Case]) -> list[Held]:
    """The 16-bit single-GPU steps of each machine, predicted by constants of its fp8 steps."""
    made, stacks = [], {}
    for c in cases:
        if c.n_gpus == 1 and c.kind == "step":
            stacks.setdefault((c.machine, c.stack), []).append(c)
    for mine in stacks.values():
        narrow = [c for c in mine if c.row.weight_dtype == "fp8"]
        made += transfer(narrow, [c for c in mine if c.row.weight_dtype in ("fp16", "bf16")])
    return made


def summary(held: Iterable[Held], by: Callable[[Held], object]) -> list[dict]:
    """Per group: how many, median |error| with its bootstrap interval, 90th percentile, bias.

    The interval is a percentile bootstrap over the cases (95 %), which are taken as independent.
    """
    groups: dict[object, list[float]] = {}
    for h in held:
        groups.setdefault(by(h), []).append(h.error)
    rows = []
    for group, found in groups.items():
        errors = np.array(found)
        picks = np.random.default_rng(0).integers(0, len(errors), (2000, len(errors)))
        low, high = np.quantile(np.median(np.abs(errors)[picks], axis=1), (0.025, 0.975))
        size = np.abs(errors)
        rows.append({
            "group": group, "n": len(errors), "median": float(np.median(size)),
            "low": float(low), "high": float(high), "p90": float(np.quantile(size, 0.9)),
            "bias": float(np.median(errors)),
        })  # fmt: skip
    return rows


def faster_than_light(cases: Iterable[Case]) -> list[tuple[Case, float, str]]:
    """(case, light ÷ published > 1, why) of those that took less than the plain roofline allows.

    A mixture of experts is tried again with the fewest experts a step can touch, k of E in every
    layer: where that is possible in the published time, tokens of random weights that all choose
    the same experts explain it. A worked number within half a per cent is the author's rounding.
    """
    found = []
    for c in cases:
        ratio = c.light() / c.seconds
        if ratio > 1:
            found.append((c, ratio, _why(c, ratio)))
    return sorted(found, key=lambda entry: -entry[1])


def faster_than_weights(points: Iterable[Point]) -> list[tuple[Point, float, str]]:
    """The same of ms per token for models of which only the size is known, as "70B".

    The bound is N parameters at 16 bits over the bandwidth of all chips. Speculative decoding gets
    below it without breaking it: one reading of the weights confirms several tokens.
    """
    found = []
    for point in points:
        size = re.search(r"(\d+)B\b", point.quantity) or re.search(r"(\d+)B\b", point.model)
        if point.unit != "ms/token" or not size:
            continue
        chip = hardware.get(machine_of(point))
        light = float(size[1]) * 1e9 * 2 / (float(point.n) * chip.bandwidth)
        ratio = light / (value(point) * 1e-3)
        if ratio > 1:
            several = "speculative" in point.quantity
            why = "several tokens are confirmed in one reading of the weights"
            found.append((point, ratio, why if several else "unexplained"))
    return sorted(found, key=lambda entry: -entry[1])


def _rows(steps: list[Case]) -> list[Row]:
    return [replace(c.row, group=c.shape) for c in steps]


def _one(steps: list[Case]) -> tuple[Accelerator, str]:
    """The machine, and its name with the program's, that all these steps share."""
    where = {(c.machine, c.stack) for c in steps}
    if len(where) != 1:
        raise ValueError(
            f"steps of {sorted(where) or 'no machine'}: constants belong to one machine and "
            "one serving program; pick the cases of one"
        )
    ((machine, stack),) = where
    return hardware.get(machine), f"{stack} on {machine}"


def _countable(c: Case) -> bool:
    """True for a single step whose weights read are known: dense, or one token of a MoE."""
    if c.kind != "step":
        return False
    return not c.row.shape.n_experts or (c.row.phase == "decode" and c.row.batch == 1)


def _why(c: Case, ratio: float) -> str:
    shape = c.parts[0][1].shape
    if shape.n_experts:
        few = replace(shape, n_experts=shape.n_experts_active)
        chip = hardware.get(c.machine)
        least = sum(
            k * roofline.predict(few, chip, **row.arguments()).roofline for k, row in c.parts
        )
        if least <= c.seconds:
            return (
                f"fewer experts were read than {shape.n_experts} uniform choices would touch: with "
                f"{shape.n_experts_active} the bound is {least / c.seconds:.2f} of the published"
            )
    if "worked" in c.point.source and ratio < 1.005:
        return "the author's rounding: " + c.point.note
    return "unexplained"
