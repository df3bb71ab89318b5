"""Rows of data/published_points.csv as read, and what their words name: shape, machine, types."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from inferlab import data
from inferlab.lab.fitting import Row
from inferlab.theory import hardware, shapes
from inferlab.theory.shapes import ModelShape
from inferlab.theory.units import bytes_per_weight

STATIC = "TRT-LLM 0.9.0 static batch"
FILLED = "TensorRT-LLM v1.0"

_SHAPES = {"gpt13b": "opt-13b", "llama3-405b": "llama-3.1-405b", "deepseek-v3 (mla)": "deepseek-v3"}
_MACHINES = {
    "a100-80": "a100-80gb-sxm", "a100-sxm4-80gb": "a100-80gb-sxm", "a100": "a100-80gb-sxm",
    "a100-40": "a100-40gb-sxm", "h100": "h100-sxm", "h100 80gb hbm3": "h100-sxm",
    "h200": "h200-sxm", "tpuv4": "tpu-v4", "tpuv5e": "tpu-v5e", "4090": "rtx-4090",
    "3090": "rtx-3090", "a10": "a10", "mi300x": "mi300x", "l4": "l4", "gh200": "gh200",
}  # fmt: skip
# 4-bit weights with a 16-bit scale and zero per group of 32 are q4_1's 20 bytes for 32 weights.
_DTYPES = {"int4 g32": "q4_1", "f16": "fp16", "16-bit": "fp16", "int8 w": "int8"}


class Unmapped(ValueError):
    """A row that no call of the predictor describes; the message says why."""


@dataclass(frozen=True)
class Point:
    """One published number, as the file has it: text, except `published` where it is a number."""

    id: str
    source: str
    address: str
    where: str
    model: str
    hw: str
    n: str
    dtype: str
    batch: str
    prompt: str
    gen: str
    quantity: str
    published: str
    unit: str
    status: str
    note: str


def read(path: str | Path | None = None) -> list[Point]:
    """The published points of data/published_points.csv, or of a file with the same columns."""
    if path is None:
        rows = data.read_csv("published_points.csv")
    else:
        with Path(path).open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    names = [f.name for f in fields(Point)]
    return [Point(**{name: (row.get(name) or "").strip() for name in names}) for row in rows]


def number(text: str, what: str) -> int:
    """A cell that holds a whole number. Raises `Unmapped`, which names it, for any other."""
    if not text.strip().isdecimal():
        raise Unmapped(f"{what} is not stated as a number ({text or 'empty'})")
    return int(text)


def value(point: Point) -> float:
    """The published number. Raises `Unmapped` for a cell that holds none, or several."""
    try:
        return float(point.published)
    except ValueError:
        raise Unmapped(f"the cell {point.published!r} holds more than one number") from None


@dataclass(frozen=True)
class Work:
    """What every step of a point shares: the machine, and a function that makes its rows."""

    machine: str
    shape: ModelShape
    row: Callable[..., Row]
    assumed: tuple[str, ...]


def work(point: Point) -> Work:
    """What the words of a point name. Raises `Unmapped` where they name nothing that we know."""
    shape, machine = _shape(point), machine_of(point)
    n_gpus = number(point.n, "the number of machines")
    name = _DTYPES.get(point.dtype.lower(), point.dtype.lower().split(" ")[0])
    try:
        bytes_per_weight(name)
    except ValueError:
        raise Unmapped(f"the weights' data type {point.dtype!r} is none we know") from None
    more, assumed = {}, ()
    if name == "fp8":
        more = {"dtype": "fp8", "head_dtype": "fp16"}
        assumed = ("products in fp8, the head in fp16 (TensorRT-LLM pull request 3567)",)
        if point.source.startswith((STATIC, FILLED)):
            more["kv_dtype"] = "fp8"
            assumed += (_NARROW_KV if point.source.startswith(STATIC) else "KV cache in fp8",)

    def row(phase: str, **step) -> Row:
        return Row(shape, phase, weight_dtype=name, n_gpus=n_gpus, label=point.id, **more, **step)

    return Work(machine, shape, row, assumed)


def machine_of(point: Point) -> str:
    """The id in data/hardware.csv of the point's machine. Raises `Unmapped` if there is none."""
    machine = _MACHINES.get(point.hw.lower(), point.hw.lower())
    if machine not in hardware.names():
        raise Unmapped(f"no machine for {point.hw!r} in data/hardware.csv")
    return machine


_NARROW_KV = "KV cache in fp8: with 16 bits Llama-2-7B at batch 64 would outrun its bytes"


def _shape(point: Point) -> ModelShape:
    key = point.model.lower()
    try:
        return shapes.get(_SHAPES.get(key) or _nearest(key))
    except ValueError:
        raise Unmapped(f"no shape for {point.model!r} in data/models.csv") from None


def _nearest(name: str) -> str:
    """The id in data/models.csv that is this name without punctuation ('LLaMA v2 7B')."""
    plain = re.sub(r"[^a-z0-9]", "", name).replace("llamav", "llama")
    return next((i for i in shapes.names() if re.sub(r"[^a-z0-9]", "", i) == plain), name)
