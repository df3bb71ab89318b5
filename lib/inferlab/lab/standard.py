"""The standard set of one machine: its ceilings, prefill and decode over their sweeps, as a file.

A file is one JSON object:

    kind, schema   "inferlab standard set", 1
    id             the machine and the day, as the file is named
    model, scale   what was asked for; `device`: where; `seconds`: how long it took
    calibration    {"device", "records"}: read bandwidth, product rates, fixed times
    prefill        pairs {"ceiling", "step", "ceiling_work", "step_work"}: a prefill pass beside a
                   matrix product; works in FLOP
    decode         the same: a decode pass beside a read of memory; works in B
    meters         {"energy", "memory traffic"}: a list of records of a decode pass, or the text why
                   there are none
    left_out       {what was planned and not measured: why}

Every record is a `records.Measurement`: all samples, the conditions (those in `AXES`) and the whole
provenance. `load` checks all of it: a file that was cut, mixed or edited is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from inferlab.data import write_atomically
from inferlab.lab.ceilings import Calibration
from inferlab.lab.pairs import Paired
from inferlab.lab.records import Measurement

KIND, SCHEMA = "inferlab standard set", 1
AXES = ("phase", "model", "weights", "dtype", "batch", "context", "new", "kernels", "device")
"""Conditions of every step: `new` tokens per sequence after `context` tokens in the cache, of
`batch` sequences; `weights` are "real" or "random"."""

_PROVENANCE = ("cpu", "cores", "threads", "memory", "os", "python", "torch", "date", "commit")
_MACHINE = ("cpu", "cores", "memory", "accelerator", "driver", "torch")


@dataclass(frozen=True)
class Standard:
    """The standard set of one machine; see the module for what each part is."""

    id: str
    model: str
    scale: str
    device: str
    seconds: float
    calibration: Calibration
    prefill: tuple[Paired, ...]
    decode: tuple[Paired, ...]
    meters: Mapping[str, tuple[Measurement, ...] | str]
    left_out: Mapping[str, str]

    def select(self, phase: str, **conditions: object) -> list[Paired]:
        """The pairs of "prefill" or "decode" whose step has all these conditions, in file order.

        Raises ValueError for a condition that no step has.
        """
        unknown = set(conditions) - set(AXES)
        if unknown or phase not in ("prefill", "decode"):
            raise ValueError(f"a point is chosen by 'prefill' or 'decode' and by {', '.join(AXES)}")
        wanted = conditions.items()
        return [
            pair for pair in getattr(self, phase)
            if all(pair.step.conditions[key] == value for key, value in wanted)
        ]  # fmt: skip

    @property
    def disturbed(self) -> int:
        """How many points were measured on fewer threads than the ceilings: beside a neighbour."""
        pairs = (*self.prefill, *self.decode)
        return sum(p.step.provenance["threads"] < self.calibration.threads for p in pairs)

    def to_dict(self) -> dict:
        """Plain JSON values, from which `from_dict` makes an equal set."""
        meters = {
            name: found if isinstance(found, str) else [record.to_dict() for record in found]
            for name, found in self.meters.items()
        }
        return {
            "kind": KIND, "schema": SCHEMA, "id": self.id, "model": self.model,
            "scale": self.scale, "device": self.device, "seconds": self.seconds,
            "calibration": self.calibration.to_dict(),
            "prefill": [pair.to_dict() for pair in self.prefill],
            "decode": [pair.to_dict() for pair in self.decode],
            "meters": meters, "left_out": dict(self.left_out),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping) -> Standard:
        """The set of `to_dict`, checked. Raises ValueError that says what is wrong."""
        kind = isinstance(data, Mapping) and (data.get("kind"), data.get("schema"))
        if kind != (KIND, SCHEMA):
            raise ValueError(f"this is no {KIND} of schema {SCHEMA}")
        try:
            found = cls(
                *(data[key] for key in ("id", "model", "scale", "device", "seconds")),
                Calibration.from_dict(data["calibration"]),
                tuple(map(Paired.from_dict, data["prefill"])),
                tuple(map(Paired.from_dict, data["decode"])),
                {name: _meter(value) for name, value in data["meters"].items()},
                dict(data["left_out"]),
            )
        except (KeyError, TypeError, AttributeError) as fault:
            raise ValueError(f"the standard set is not whole: {fault!r}") from None
        _check(found)
        return found

    def save(self, path: str | Path) -> Path:
        """Write to a JSON file in one piece: no reader ever sees half of it."""
        target = Path(path)
        write_atomically(target, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")
        return target


def load(path: str | Path) -> Standard:
    """The standard set in a file, checked. Raises ValueError for a file that is none."""
    source = Path(path)
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
        return Standard.from_dict(content)
    except json.JSONDecodeError as fault:
        raise ValueError(f"{source.name} is not JSON (line {fault.lineno}): {fault.msg}") from None
    except ValueError as fault:
        raise ValueError(f"{source.name}: {fault}") from None


def name(calibration: Calibration) -> str:
    """The id of a set: the machine, its threads where it is a CPU, and the day."""
    where = calibration.records[0].provenance
    label = where.get("accelerator") or f"{where['cpu']} {where['threads']} threads"
    return f"{re.sub(r'[^a-z0-9]+', '-', label.lower()).strip('-')}-{where['date'][:10]}"


def _meter(value) -> tuple[Measurement, ...] | str:
    return value if isinstance(value, str) else tuple(map(Measurement.from_dict, value))


def _check(found: Standard) -> None:
    """Raises ValueError unless every part is there, complete, and of one machine."""
    for phase in ("prefill", "decode"):
        pairs = getattr(found, phase)
        if len(pairs) < 2:
            raise ValueError(f"{len(pairs)} points of {phase}: a sweep has at least two")
        for pair in pairs:
            missing = [axis for axis in AXES if axis not in pair.step.conditions]
            if missing:
                raise ValueError(f"a {phase} step does not say its {', '.join(missing)}")
            if pair.step.conditions["phase"] != phase:
                raise ValueError(f"a step of {pair.step.conditions['phase']} is among {phase}")
            if not (pair.ceiling_work and pair.step_work):
                raise ValueError(f"a {phase} step or its ceiling does not say its work")
        points = [tuple(str(p.step.conditions[axis]) for axis in AXES) for p in pairs]
        if len(set(points)) < len(points):
            raise ValueError(f"a point of {phase} is there twice")
    first = found.calibration.records[0].provenance
    for record in _records(found):
        missing = [fact for fact in _PROVENANCE if fact not in record.provenance]
        if missing:
            raise ValueError(f"{record.name!r} does not say its {', '.join(missing)}")
        other = [k for k in _MACHINE if record.provenance.get(k) != first.get(k)]
        if other:
            raise ValueError(f"records of two machines or torches are mixed: {', '.join(other)}")


def _records(found: Standard) -> Iterator[Measurement]:
    yield from found.calibration.records
    for pair in (*found.prefill, *found.decode):
        yield from (pair.ceiling, pair.step)
    for records in found.meters.values():
        if not isinstance(records, str):
            yield from records
