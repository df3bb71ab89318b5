"""Names beside dots: on the first free side, and on no other name where there is room."""

from __future__ import annotations

from itertools import combinations

import pytest
from matplotlib.figure import Figure as Canvas

from inferlab.lab import labels


@pytest.fixture
def axes():
    canvas = Canvas(figsize=(6, 4), dpi=100)
    axes = canvas.add_subplot()
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 10)
    canvas.draw_without_rendering()
    return axes


def write(axes, spots, **how):
    dots, taken = axes.transData.transform(spots), []
    for i, spot in enumerate(spots):
        others = [dot for j, dot in enumerate(dots) if j != i]
        labels.beside(axes, f"name {i}", spot, others, taken, 9, **how)
    axes.figure.draw_without_rendering()
    return taken, [text.get_window_extent().extents for text in axes.texts]


def test_names_of_near_dots_keep_off_each_other(axes):
    taken, drawn = write(axes, [(5, 5), (5.3, 5), (5.1, 5.3)])
    assert len(taken) == 3
    assert not any(labels.overlap(a, b) for a, b in combinations(drawn, 2))


def test_a_lone_name_stands_on_the_right(axes):
    _, [box] = write(axes, [(5, 5)])
    x, y = axes.transData.transform((5, 5))
    assert box[0] > x
    assert box[1] < y < box[3]


def test_at_the_edge_it_turns_inwards(axes):
    _, [box] = write(axes, [(9.9, 5)], margin=0)
    assert box[2] <= axes.bbox.x1


def test_a_line_is_not_crossed_where_another_side_is_free(axes):
    x, y = axes.transData.transform((5, 5))
    line = [(x + 20, y + step) for step in range(-80, 80, 4)]
    _, [box] = write(axes, [(5, 5)], lines=[line])
    assert box[2] < x + 20


def test_boxes_that_only_touch_do_not_overlap():
    assert labels.overlap((0, 0, 2, 2), (1, 1, 3, 3))
    assert not labels.overlap((0, 0, 2, 2), (2, 0, 3, 3))
