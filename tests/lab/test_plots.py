"""Figures belong to the page: its colours, its data, its words."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET

import pytest

from inferlab.lab import plots
from inferlab.theory.latency import Timeline

WHERE = {
    "cpu": "A CPU",
    "threads": 2,
    "torch": "2.13.0",
    "date": "2026-01-02T03:04:05",
    "commit": "abc",
}
ROWS = {"predicted": Timeline(0.0, (0.1, 0.2, 0.3)), "measured": Timeline(0.0, (0.2, 0.35, 0.5))}
ALT = "Two bars, the second longer than the first."


@pytest.fixture(scope="module")
def shown() -> plots.Figure:
    return plots.timelines(ROWS, alt=ALT, caption="Blue & orange.", provenance=WHERE)


def test_svg_is_well_formed_and_named(shown):
    for svg in (shown.wide, shown.narrow):
        root = ET.fromstring(svg)
        assert root.get("aria-label") == ALT
        assert root.get("role") == "img"
        assert root.get("width") is None


def test_colours_are_the_pages(shown):
    svg = shown.wide
    assert "var(--il-prefill" in svg
    assert "var(--il-decode" in svg
    assert "currentColor" in svg
    left = set(re.findall(r"#[0-9a-f]{6}\b", svg.lower())) - {
        plots.PREFILL,
        plots.DECODE,
        "#9aa4af",
    }
    assert not left, left


def test_ids_do_not_meet(shown):
    html = shown._repr_html_()
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', html))
    assert used <= set(ids)


def test_the_data_can_be_had(shown):
    coded = re.search(r"base64,([^\"]+)", shown._repr_html_()).group(1)
    rows = base64.b64decode(coded).decode().splitlines()
    assert rows[0] == "row,token,phase,seconds"
    assert rows[1] == "predicted,1,prefill,0.1"
    assert len(rows) == 7


def test_machine_and_commit_stand_under_it(shown):
    html = shown._repr_html_()
    assert "A CPU, 2 threads, torch 2.13.0, 2026-01-02, commit abc" in html
    assert "Blue &amp; orange." in html
    assert repr(shown) == f"[figure] {ALT}"


def test_alt_text_must_say_something():
    with pytest.raises(ValueError, match="say in a sentence"):
        plots.timelines(ROWS, alt="A figure")


@pytest.mark.parametrize(
    ("share", "labels"),
    [
        (0.08, ["16", "64", "256", "512"]),
        (0.22, ["16", "64", "", "512"]),
        (1.0, ["16", "", "", "512"]),
    ],
)
def test_labels_of_places_too_near_each_other_are_left_out(share, labels):
    assert plots._apart([16, 64, 256, 512], share) == labels
