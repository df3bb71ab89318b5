"""Accelerators: dense nameplate peaks, bandwidth, memory and power, from data/hardware.csv.

A nameplate figure is what the maker prints, without structured sparsity. It is a ceiling nobody
reaches; what a machine does reach is measured in `lab.ceilings`.
"""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass, field

from inferlab import data
from inferlab.theory.units import canonical_dtype

_COLUMNS = {
    "fp32": "peak_fp32_flops",
    "bf16": "peak_bf16_flops",
    "fp16": "peak_fp16_flops",
    "fp8": "peak_fp8_flops",
    "int8": "peak_int8_ops",
    "fp4": "peak_fp4_flops",
}


@dataclass(frozen=True)
class Accelerator:
    """One accelerator chip.

    id           as in data/hardware.csv; name: as its maker writes it
    peaks        data type -> dense nameplate FLOP/s (int8: operations/s), fp32 accumulation
    bandwidth    byte/s of the main memory
    memory       bytes: as the driver reports them where memory_from is 'driver', else the gigabytes
                 of the maker's sheet, whose '80 GB' may be GB, GiB or neither
    power        W, the highest sustained board power; None where none is published
    source       where the figures were read; source_kind 'primary' (maker) or 'secondary'
    """

    id: str
    name: str
    peaks: dict[str, float] = field(hash=False)
    bandwidth: float
    memory: float
    memory_from: str
    power: float | None
    source: str
    source_kind: str
    note: str = ""

    def peak_flops(self, dtype: str = "bf16") -> float:
        """Dense nameplate peak of matrix products in this data type, FLOP/s.

        Raises ValueError where the chip has none, and names those it has.
        """
        name = canonical_dtype(dtype)
        if name not in self.peaks:
            raise ValueError(
                f"{self.name} has no {name} peak in data/hardware.csv: it has "
                f"{', '.join(self.peaks)}; pass one of these as the compute data type"
            )
        return self.peaks[name]


def get(id: str) -> Accelerator:
    """The accelerator of this id, e.g. get('h100-sxm'). Source: data/hardware.csv.

    Raises ValueError for an unknown id and names the ids most like it.
    """
    key, known = str(id).lower(), _all()
    if key not in known:
        near = [k for k in known if k.startswith(key)] or difflib.get_close_matches(
            key, known, n=4, cutoff=0.4
        )
        raise ValueError(
            f"no accelerator {id!r}: did you mean {', '.join(near or sorted(known))}? "
            "hardware.names() lists all"
        )
    return known[key]


def names() -> tuple[str, ...]:
    """Ids of the accelerators, in the order of data/hardware.csv."""
    return tuple(_all())


@functools.cache
def _all() -> dict[str, Accelerator]:
    return {row["id"]: _read(row) for row in data.read_csv("hardware.csv")}


def _read(row: dict[str, str]) -> Accelerator:
    return Accelerator(
        id=row["id"],
        name=row["name"],
        peaks={dtype: float(row[column]) for dtype, column in _COLUMNS.items() if row[column]},
        bandwidth=float(row["bandwidth_bytes_per_second"]),
        memory=float(row["memory_bytes"]),
        memory_from=row["memory_from"],
        power=float(row["power_watts"]) if row["power_watts"] else None,
        source=row["source"],
        source_kind=row["source_kind"],
        note=row["note"],
    )
