"""Machines on one map: what was measured and what is printed are kept apart; figures of both."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from inferlab import data
from inferlab.lab.experiments import machines
from inferlab.lab.intervals import Interval
from inferlab.lab.plots_factors import factors
from inferlab.lab.plots_map import Place, machine_map
from inferlab.theory import hardware, roofline, shapes

WORDS = ("misleads", "harmless", "undecided")
ALT = "Some machines on a map, one of them measured."


@pytest.fixture(scope="module")
def recorded():
    return machines.recorded()


def test_every_recorded_set_is_read_and_placed_as_measured(recorded):
    files = [n for n in data.names() if n.startswith("measurements/") and n.endswith(".json")]
    assert len(recorded) == len(files) >= 1
    for found in recorded:
        where = machines.place(found)
        assert where.measured
        assert where.bandwidth == found.calibration.bandwidth
        assert where.rate == found.calibration.peak_flops(machines.first(found))


def test_what_is_no_set_is_passed_over_and_a_cut_one_is_named(recorded):
    assert machines.read('{"recordings": []}', "runs.json") is None
    cut = recorded[0].to_dict()
    del cut["decode"][0]["step"]["samples"]
    with pytest.raises(ValueError, match=r"cut\.json"):
        machines.read(json.dumps(cut), "cut.json")


def test_nameplates_are_never_measured():
    places = machines.nameplates(("h100-sxm", "t4"))
    assert not any(p.measured for p in places)
    t4 = hardware.get("t4")
    assert machines.kind(t4) == "fp16"
    assert places[1] == Place("T4", t4.bandwidth, t4.peak_flops("fp16"), False)


def test_a_bound_is_the_plain_roofline_and_none_where_nothing_fits():
    h100, llama = hardware.get("h100-sxm"), shapes.get("llama-3-8b")
    found = machines.bound(llama, h100, h100.memory, "bf16", 1024)
    assert found == roofline.decode_time(llama, h100, context=1024)
    room = 2 * llama.params + 1025 * llama.kv_bytes_per_token("bf16")  # weights and cache
    assert machines.bound(llama, h100, room, "bf16", 1024) is not None
    assert machines.bound(llama, h100, room - 1, "bf16", 1024) is None


def test_no_measured_step_is_faster_than_its_bound(recorded):
    for found in recorded:
        steps = machines.steps(found)
        assert len(steps) == len(found.decode)
        for step, pair in zip(steps, found.decode, strict=True):
            assert step.over.low > 0.95  # ceilings are medians of the same minute
            assert step.over.value == pytest.approx(step.measured / step.floor, rel=0.15)
            assert step.measured == pair.step.value


def test_the_ridge_points_at_both_ends():
    low, high, between = (Place(str(r), 1e9, r * 1e9, True) for r in (3, 300, 30))
    assert machines.farthest([between, high, low]) == (low, high)


def test_the_map_names_every_machine_and_marks_what_was_measured():
    places = [Place("here", 5e10, 1e12, True), *machines.nameplates(("h100-sxm", "h200-sxm"))]
    shown = machine_map(places, x_label="B/s", y_label="FLOP/s", alt=ALT)
    for svg in (shown.wide, shown.narrow):
        text = " ".join(ET.fromstring(svg).itertext())
        assert all(p.label in text for p in places)
        assert "100 FLOP/B" in text
    assert [row["kind"] for row in shown.data] == ["measured", "nameplate", "nameplate"]
    with pytest.raises(ValueError, match="at least one machine"):
        machine_map([], x_label="", y_label="", alt=ALT)


def test_factors_draw_every_point_as_it_came_out():
    points = [(Interval(2, 1.8, 2.2), "misleads"), (Interval(1, 0.98, 1.02), "harmless")]
    rows = [("one", points), ("two", [(Interval(0.5, 0.2, 2), "undecided")])]
    how = {"band": 1.1, "x_label": "times off", "alt": ALT}
    shown = factors(rows, words=WORDS, **how)
    for svg in (shown.wide, shown.narrow):
        text = " ".join(ET.fromstring(svg).itertext())
        assert all(word in text for word in ("one", "two", *WORDS))
    with pytest.raises(ValueError, match="came out as fine"):
        factors([("one", [(Interval(1, 1, 1), "fine")])], words=WORDS, **how)
