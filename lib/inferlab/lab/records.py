"""Measurement: a number that was measured, with its spread and everything that explains it.

A record is plain data: it is saved as JSON, loaded, compared and drawn, and nothing changes it.
Intervals are percentile-bootstrap intervals of the median, in numpy alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from inferlab.data import write_atomically
from inferlab.lab import host
from inferlab.lab.host import machine, provenance
from inferlab.lab.intervals import (
    MIN_SAMPLES,
    Interval,
    finite,
    median_interval,
    ratio,
    ratio_of_medians,
)
from inferlab.theory.units import si

__all__ = [
    "MIN_SAMPLES", "Comparison", "Interval", "Measurement", "compare", "load", "machine",
    "median_interval", "provenance", "ratio", "save",
]  # fmt: skip

_SCHEMA = 1


@dataclass(frozen=True)
class Measurement:
    """One measured quantity: the median of n samples, its quartiles and extremes, how and where.

    value       median of `samples`, in `unit`
    conditions  what was run (shape, dtype, batch, context, probe, warm-up …), JSON values
    provenance  where, when and with which code (`provenance()`)
    """

    name: str
    value: float
    unit: str
    n: int
    q25: float
    q75: float
    minimum: float
    maximum: float
    samples: tuple[float, ...]
    conditions: Mapping = field(default_factory=dict)
    provenance: Mapping = field(default_factory=dict)

    @classmethod
    def from_samples(
        cls,
        name: str,
        samples: Iterable[float],
        unit: str,
        conditions: Mapping | None = None,
        provenance: Mapping | None = None,
    ) -> Measurement:
        """The record of `samples` (in `unit`); `provenance` is read from here unless given.

        Raises ValueError when there are none, or one is not finite, and TypeError when conditions
        or provenance are not plain JSON values.
        """
        values = finite(samples, name)
        q25, middle, q75 = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
        where = host.provenance() if provenance is None else provenance
        return cls(
            name, middle, unit, len(values), q25, q75, float(values.min()), float(values.max()),
            tuple(float(v) for v in values), _plain(conditions or {}), _plain(where),
        )  # fmt: skip

    @property
    def spread(self) -> float:
        """Interquartile range ÷ median, dimensionless."""
        return (self.q75 - self.q25) / self.value if self.value else math.inf

    def interval(self, level: float = 0.95) -> Interval:
        """Bootstrap interval of the median (see `median_interval`)."""
        return median_interval(self.samples, level)

    def to_dict(self) -> dict:
        """Plain JSON values, from which `from_dict` makes an equal record."""
        return {**asdict(self), "samples": list(self.samples)}

    @classmethod
    def from_dict(cls, data: Mapping) -> Measurement:
        """The record of `to_dict`. Raises ValueError when it does not fit its own samples."""
        try:
            fields = {key: data[key] for key in cls.__dataclass_fields__}
            fields["samples"] = tuple(float(v) for v in data["samples"])
            record = cls(**fields)
            remade = cls.from_samples(
                record.name, record.samples, record.unit, record.conditions, record.provenance
            )
        except (KeyError, TypeError) as fault:
            raise ValueError(f"this is no saved measurement: {fault!r}") from None
        derived = ("value", "n", "q25", "q75", "minimum", "maximum")
        for key in derived:
            if not math.isclose(getattr(record, key), getattr(remade, key), rel_tol=1e-12):
                raise ValueError(
                    f"the {key} of the saved measurement {record.name!r} does not follow from its "
                    "samples: the file was changed by hand; measure again"
                )
        return record

    def save(self, path: str | Path) -> Path:
        """Write this record alone to a JSON file (see `save`)."""
        return save([self], path)

    def __str__(self) -> str:
        return (
            f"{self.name}: {si(self.value, self.unit)} "
            f"(quartiles {si(self.q25, self.unit)} to {si(self.q75, self.unit)}, n = {self.n})"
        )


@dataclass(frozen=True)
class Comparison:
    """Two records of one quantity: `ratio` = second ÷ first, and in what they differ."""

    ratio: Interval
    conditions: Mapping[str, tuple]
    provenance: Mapping[str, tuple]

    @property
    def differ(self) -> bool:
        """True when the interval of the ratio excludes 1."""
        return not self.ratio.low <= 1.0 <= self.ratio.high


def compare(first: Measurement, second: Measurement, level: float = 0.95) -> Comparison:
    """second ÷ first for two records of the same quantity, taken apart, perhaps on two machines.

    The interval resamples both independently, so it is wider than that of paired rounds. Raises
    ValueError when name or unit differ, a sample of the first is not above 0, or samples are few.
    """
    if (first.name, first.unit) != (second.name, second.unit):
        raise ValueError(
            f"{first.name!r} in {first.unit} and {second.name!r} in {second.unit} "
            "are not the same quantity"
        )
    return Comparison(
        ratio_of_medians(second.samples, first.samples, level),
        _differences(first.conditions, second.conditions),
        _differences(first.provenance, second.provenance),
    )


def save(records: Iterable[Measurement], path: str | Path) -> Path:
    """Write records to a JSON file; a reader never sees half of it (temporary file, then rename).

    Returns the path. On any error the old file stays as it was and nothing else is left behind.
    """
    target = Path(path)
    content = {"schema": _SCHEMA, "records": [record.to_dict() for record in records]}
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_atomically(target, text)
    return target


def load(path: str | Path) -> tuple[Measurement, ...]:
    """The records of a file written by `save`. Raises ValueError for a file that is not one."""
    source = Path(path)
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{source.name} is not JSON (line {error.lineno}): {error.msg}") from None
    if not isinstance(content, dict) or content.get("schema") != _SCHEMA:
        raise ValueError(f"{source.name} holds no measurements of schema {_SCHEMA}")
    return tuple(Measurement.from_dict(data) for data in content.get("records", []))


def _differences(first: Mapping, second: Mapping) -> dict[str, tuple]:
    keys = sorted(set(first) | set(second))
    return {k: (first.get(k), second.get(k)) for k in keys if first.get(k) != second.get(k)}


def _plain(values: Mapping) -> dict:
    """The mapping as JSON gives it back (tuples become lists), so that a loaded record is equal."""
    return json.loads(json.dumps(dict(values), allow_nan=False))
