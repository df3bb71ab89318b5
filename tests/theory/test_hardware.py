"""The table of accelerators is numbers with sources, and the usual confusions are not in it."""

import re

import pytest

from inferlab import data
from inferlab.theory import hardware

IDS = [
    "t4",
    "l4",
    "a10",
    "a10g",
    "l40s",
    "v100-sxm",
    "a100-40gb-sxm",
    "a100-80gb-sxm",
    "h100-sxm",
    "h100-pcie",
    "h100-nvl",
    "h200-sxm",
    "gh200",
    "b200",
    "mi300x",
    "rtx-3090",
    "rtx-4090",
    "tpu-v4",
    "tpu-v5e",
    "tpu-v5p",
    "tpu-v6e",
]


@pytest.mark.parametrize("id", IDS)
def test_ids_others_rely_on(id):
    chip = hardware.get(id)
    assert chip.id == id
    assert chip.bandwidth > 1e11
    assert chip.memory > 1e10
    assert chip.peaks


def test_every_row_is_clean():
    rows = data.read_csv("hardware.csv")
    assert hardware.names() == tuple(row["id"] for row in rows)
    assert len(set(hardware.names())) == len(rows)
    for row in rows:
        for column, text in row.items():
            if column.startswith(("peak_", "bandwidth_", "memory_bytes", "power_")):
                assert text == "" or float(text) > 0, (row["id"], column)
        assert row["source"]
        assert row["source_kind"] in ("primary", "secondary")
        assert row["memory_from"] in ("driver", "sheet")
        assert re.fullmatch(r"[a-z0-9-]+", row["id"])


def test_peaks_are_dense():
    # The datasheets print 1979 (bf16) and 3958 (fp8) TFLOP/s for H100 SXM with sparsity.
    h100 = hardware.get("h100-sxm")
    assert h100.peak_flops("bf16") == 9.89e14
    assert h100.peak_flops("fp8") == 1.979e15
    assert hardware.get("l4").peak_flops("bf16") == 1.21e14  # printed 242 with sparsity
    for id in hardware.names():
        peaks = hardware.get(id).peaks
        if "fp8" in peaks and "bf16" in peaks:
            # The L40S sheet prints 733 for fp8 and 362 for bf16; a sparse figure would give 4 or 1.
            assert peaks["fp8"] / peaks["bf16"] == pytest.approx(2, rel=0.013), id
        assert peaks.get("bf16") == peaks.get("fp16", peaks.get("bf16")) or "bf16" not in peaks


def test_memory_is_what_the_driver_reports():
    assert hardware.get("h200-sxm").memory == 143771 * 2**20
    assert hardware.get("t4").memory == 15360 * 2**20
    assert hardware.get("mi300x").memory == 206141652992
    assert hardware.get("tpu-v5e").memory_from == "sheet"


def test_the_secondary_sources_are_marked():
    for id in ("t4", "l4", "a10g", "h100-nvl"):
        assert hardware.get(id).source_kind == "secondary"


def test_a_type_the_chip_lacks_is_refused_with_those_it_has():
    with pytest.raises(ValueError, match=r"NVIDIA T4 has no bf16 peak.*fp32, fp16, int8"):
        hardware.get("t4").peak_flops("bf16")
    with pytest.raises(ValueError, match="unknown data type 'bf17'"):
        hardware.get("t4").peak_flops("bf17")


def test_an_unknown_id_lists_the_near_ones():
    with pytest.raises(ValueError, match=r"no accelerator 'h100': did you mean h100-sxm"):
        hardware.get("h100")
    assert hardware.get("H100-SXM") is hardware.get("h100-sxm")
