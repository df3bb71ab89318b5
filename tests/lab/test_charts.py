"""Figures of single pages: what they write stays on the picture."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure as Canvas

from inferlab.lab import charts, plots

ROWS = {
    "experts: active only": {"deepseek-v3, batch 128": 0.056, "mixtral-8x7b, batch 1": 1.0},
    "cache with query heads": {"palm-540b": 48.0},
}


@pytest.mark.parametrize("narrow", [False, True])
def test_labels_of_factors_lie_between_the_names_and_the_edge(monkeypatch, narrow):
    drawn = {}
    monkeypatch.setattr(charts, "figure", lambda draw, **how: drawn.update(how, draw=draw))
    charts.factors(ROWS, x_label="said ÷ counted", alt="Two rows of points, one far to the left.")
    size = (plots._NARROW if narrow else plots._WIDE, drawn["height"])
    canvas = Canvas(figsize=size, layout="constrained")
    axes = canvas.add_subplot()
    drawn["draw"](axes, narrow)
    canvas.draw_without_rendering()
    begins = axes.get_window_extent().x0
    factors = [label for label in axes.texts if "×" in label.get_text()]
    assert len(factors) == 3
    for label in factors:
        box = label.get_window_extent()
        assert begins <= box.x0 < box.x1 <= canvas.bbox.x1, label.get_text()
