"""The limit of an operation: by intensity, by the clock, and what a planted falsehood does."""

from dataclasses import replace

import pytest

from inferlab.engine.load import random_model
from inferlab.lab import plots_roofline
from inferlab.lab.experiments import limits, predictor
from inferlab.lab.intervals import Interval
from inferlab.theory import counts

TINY = predictor.base(
    2, name="tiny", d_model=64, n_heads=4, n_kv_heads=2, head_dim=16, d_ff=96, vocab=128
)
HERE = limits.Here(bandwidth=10e9, rate=200e9)  # ridge point 20


def operation(intensity: float, doubled: float, phase: str = "decode", spread: float = 0.05):
    took = Interval(doubled, doubled - spread, doubled + spread, 0.95, 9)
    return limits.Operation("o", phase, intensity * 1e6, 1e6, 1e-4, took)


@pytest.mark.parametrize(
    ("doubled", "spread", "says"),
    [(1.05, 0.05, "memory"), (1.95, 0.05, "arithmetic"), (1.4, 0.1, "undecided")],
)
def test_the_clock_decides_by_what_doubling_the_flops_costs(doubled, spread, says):
    assert operation(1, doubled, spread=spread).timed == says


def test_intensity_decides_by_the_ridge_point():
    assert HERE.ridge == 20
    assert operation(19, 1).named(HERE.ridge) == "memory"
    assert operation(21, 1).named(HERE.ridge) == "arithmetic"


def test_the_share_that_is_named_rightly():
    right = [operation(1, 1.1), operation(100, 1.9)]
    wrong = [operation(1, 1.9), operation(100, 1.4, spread=0.2)]
    assert limits.share_named([*right, *wrong], HERE, "decode") == 0.5
    assert limits.share_named(right, HERE, "decode", plant="swapped") == 0
    assert limits.share_named([operation(5, 1.1)], HERE, "decode", plant="no-ridge") == 0


def test_every_product_and_the_attention_of_both_phases():
    found = limits.operations(random_model(TINY, "cpu", "bf16"), prompt=8, context=32)
    assert len(found) == 12
    assert {o.phase for o in found} == {"prefill", "decode"}
    whole = counts.step(TINY, [counts.Sequence(8)], causal_half=False)
    products = sum(o.flops for o in found if o.phase == "prefill")
    rest = sum(op.flops for op in whole.ops if op.name in ("rope", "act", "residual", "norm"))
    assert 0 < whole.flops - products <= 0.1 * whole.flops, rest
    assert all(o.seconds > 0 and o.doubled.value > 0 for o in found)


def test_the_figure_names_what_it_shows():
    drawn = plots_roofline.roofline(
        [operation(1, 1.1), replace(operation(50, 1.9), phase="prefill", name="down")], HERE,
        alt="two operations under a roof, one left and one right of its edge",
    )  # fmt: skip
    assert "ridge point 20" in drawn.wide
    assert [row["phase"] for row in drawn.data] == ["decode", "prefill"]
    with pytest.raises(ValueError, match="at least one"):
        plots_roofline.roofline([], HERE, alt="nothing is seen in this figure")
