"""Bytes per weight against the `gguf` package's table, and numbers as a reader sees them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab.theory import units


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("fp32", 4), ("bf16", 2), ("fp16", 2), ("fp8", 1), ("int8", 1), ("int4", 0.5), ("fp4", 0.5)],
)
def test_plain_types(dtype, size):
    assert units.bytes_per_weight(dtype) == size


@pytest.mark.parametrize(
    "block",
    [
        "q4_0",
        "q4_1",
        "q5_0",
        "q5_1",
        "q8_0",
        "q2_k",
        "q3_k",
        "q4_k",
        "q5_k",
        "q6_k",
        "f16",
        "f32",
        "bf16",
    ],
)
def test_block_types_are_those_of_the_gguf_package(block):
    gguf = pytest.importorskip("gguf")
    weights, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[block.upper()]]
    assert units.bytes_per_weight(block) == size / weights
    assert units.bytes_per_weight(block.upper()) == size / weights


def test_group_scales_are_counted():
    assert units.bytes_per_weight("int4", group=128) == 0.5 + 2 / 128
    # Microscaling v1.0: 32 four-bit weights and one 8-bit scale are 17 bytes; NVFP4: 16 and one, 9.
    assert units.bytes_per_weight("fp4", group=32) * 32 == 17
    assert units.bytes_per_weight("fp4", group=16) * 16 == 9
    # A 16-bit scale and a 16-bit zero point for 32 weights.
    assert units.bytes_per_weight("int4", group=32, scale_bytes=4) == 0.625


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("int3",), "unknown data type 'int3'.*int4"),
        (("q4_k_m",), "unknown data type 'q4_k_m'"),
        (("bf16", 32), "takes no group"),
        (("q4_0", 32), "takes no group"),
        (("int4", 0), "at least one weight"),
        (("int4", None, 2.0), "without a group"),
    ],
)
def test_bad_types_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        units.bytes_per_weight(*arguments)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.02e10, "B/s", "30.2 GB/s"),
        (999.96e6, "B", "1.00 GB"),
        (1e3, "B", "1.00 kB"),
        (7.0e13, "FLOP", "70.0 TFLOP"),
        (0.0168, "s", "16.8 ms"),
        (0, "B", "0 B"),
        (-1500, "W", "-1.50 kW"),
        (999, "", "999"),
        (1e25, "FLOP", "1.00e+25 FLOP"),
        (float("inf"), "s", "inf s"),
    ],
)
def test_si(value, unit, text):
    assert units.si(value, unit) == text


@given(st.floats(1e-12, 9e20), st.integers(1, 8))
def test_si_says_the_number_it_was_given(value, digits):
    text = units.si(value, "", digits).split(" ")
    power = {v: k for k, v in units._PREFIXES.items()}[text[1] if len(text) > 1 else ""]
    # Half a unit of the last digit written, and the rounding of the floats themselves.
    assert float(text[0]) * 10.0**power == pytest.approx(value, rel=0.5 * 10 ** (1 - digits) + 1e-9)
    assert 1 <= float(text[0]) < 1000


def test_a_gigabyte_is_not_a_gibibyte():
    assert units.si(80e9, "B") == "80.0 GB"
    assert units.gibibytes(80e9) == "74.5 GiB"
    assert units.gibibytes(79.6 * 2**30) == "79.6 GiB"


@pytest.mark.parametrize(
    ("t", "text"),
    [
        (8e-6, "8.00 µs"),
        (1.2, "1.20 s"),
        (119.0, "119 s"),
        (125.2, "2 min 5 s"),
        (7199.9, "2 h 0 min"),
        (10805, "3 h 0 min"),
    ],
)
def test_seconds(t, text):
    assert units.seconds(t) == text
