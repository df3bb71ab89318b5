"""Bytes per weight of every data type used here, and how numbers are written for a reader.

SI throughout: 1 GB is 1e9 bytes, 1 TFLOP/s is 1e12 FLOP/s. GiB (2**30 bytes) appears only where it
is asked for by name, in `gibibytes`.
"""

from __future__ import annotations

import math

# Bytes of one element that carries no scale of its own.
_PLAIN = {
    "fp64": 8.0, "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5,
    "fp4": 0.5,
}  # fmt: skip
_ALIASES = {
    "f64": "fp64", "float64": "fp64",
    "f32": "fp32", "float32": "fp32",
    "f16": "fp16", "float16": "fp16",
    "bfloat16": "bf16",
}  # fmt: skip
# Bytes of one scale, for the types that can be stored in groups. 16-bit scales for int8, int4 and
# fp8; 8-bit scales for fp4 (E8M0 in OCP MXFP4, E4M3 in NVFP4).
_SCALE = {"fp8": 2.0, "int8": 2.0, "int4": 2.0, "fp4": 1.0}
# GGUF block types: (bytes of a block, weights in a block), scales and minima included.
# Source: ggml/src/ggml-common.h of llama.cpp (struct sizes asserted there).
_BLOCKS = {
    "q4_0": (18, 32), "q4_1": (20, 32), "q5_0": (22, 32), "q5_1": (24, 32), "q8_0": (34, 32),
    "q2_k": (84, 256), "q3_k": (110, 256), "q4_k": (144, 256), "q5_k": (176, 256),
    "q6_k": (210, 256),
}  # fmt: skip

DTYPES: tuple[str, ...] = (*_PLAIN, *_BLOCKS)
"""Every data type `bytes_per_weight` knows, aliases (f32, float16, ...) left out."""


def canonical_dtype(dtype: str) -> str:
    """The one name of a data type: 'F16' and 'float16' are 'fp16', 'Q4_K' is 'q4_k'.

    Raises ValueError for a name that is no data type.
    """
    name = str(dtype).lower()
    name = _ALIASES.get(name, name)
    if name not in _PLAIN and name not in _BLOCKS:
        raise ValueError(f"unknown data type {dtype!r}: known are {', '.join(DTYPES)}")
    return name


def bytes_per_weight(
    dtype: str, group: int | None = None, scale_bytes: float | None = None
) -> float:
    """Mean bytes one stored weight takes, b = b_element + b_scale / group, in byte per weight.

    dtype        a plain type (fp32 bf16 fp16 fp8 int8 int4 fp4) or a GGUF block type
                 (q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k), whose scales are included.
    group        weights that share one scale; None counts no scale, as for one scale per output
                 row. Only for fp8, int8, int4 and fp4: the other types carry none or their own.
    scale_bytes  bytes of scale (and zero point) per group; default 2, and 1 for fp4.

    bytes_per_weight('q4_0') is 18 / 32 = 0.5625; bytes_per_weight('int4', group=128) is 0.515625.
    Raises ValueError for an unknown type, a group that is not positive, or a group for a type that
    has no group scales. Source: ggml-common.h (block types); OCP Microscaling v1.0 (fp4 scales).
    """
    name = canonical_dtype(dtype)
    if name in _BLOCKS:
        size, weights = _BLOCKS[name]
        element = size / weights
    else:
        element = _PLAIN[name]
    if group is None:
        if scale_bytes is not None:
            raise ValueError("scale_bytes was given without a group: pass group= as well")
        return element
    if name not in _SCALE:
        raise ValueError(f"{dtype!r} takes no group: group scales exist for {', '.join(_SCALE)}")
    if group < 1:
        raise ValueError(f"group={group}: a group holds at least one weight")
    return element + (_SCALE[name] if scale_bytes is None else scale_bytes) / group


_PREFIXES = {
    -12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E",
}  # fmt: skip


def si(value: float, unit: str = "", digits: int = 3) -> str:
    """A number with an SI prefix and `digits` significant digits: si(3.02e10, 'B/s') '30.2 GB/s'.

    value in `unit`. Values beyond the prefixes (below 1e-12, from 1e21 on) are written with an
    exponent. Rounding comes before the prefix, so 999.96e6 is '1.00 G'.
    """
    if digits < 1:
        raise ValueError(f"digits={digits}: at least one digit is written")
    if not math.isfinite(value):
        return f"{value} {unit}".rstrip()
    if value == 0:
        return f"0 {unit}".rstrip()
    rounded = float(f"{value:.{digits - 1}e}")
    power = math.floor(math.log10(abs(rounded)) + 1e-12)
    prefix = 3 * (power // 3)
    if prefix not in _PREFIXES:
        return f"{value:.{digits - 1}e} {unit}".rstrip()
    decimals = max(0, digits - 1 - (power - prefix))
    return f"{rounded / 10.0**prefix:.{decimals}f} {_PREFIXES[prefix]}{unit}".rstrip()


def seconds(t: float, digits: int = 3) -> str:
    """A duration in words a reader takes in at once: '16.8 ms', '1.20 s', '2 min 5 s', '3 h 0 min'.

    t in seconds. Below two minutes `digits` significant digits; above, whole seconds or minutes.
    """
    if not math.isfinite(t) or abs(t) < 119.5:
        return si(t, "s", digits)
    sign, whole = ("-" if t < 0 else ""), round(abs(t))
    if whole < 7200:
        return f"{sign}{whole // 60} min {whole % 60} s"
    minutes = round(abs(t) / 60)
    return f"{sign}{minutes // 60} h {minutes % 60} min"


def gibibytes(n: float, digits: int = 3) -> str:
    """n bytes in GiB (2**30 bytes), for comparison with tools that print them: '79.6 GiB'."""
    value = float(f"{n / 2**30:.{digits - 1}e}")
    power = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, digits - 1 - power)}f} GiB"
