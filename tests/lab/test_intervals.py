"""Bootstrap intervals: their coverage, what they refuse, and that pairing cancels shared noise."""

import numpy as np
import pytest

from inferlab.lab.intervals import (
    MIN_SAMPLES,
    Interval,
    median_interval,
    ratio,
    ratio_of_medians,
)


def _coverage(level: float, n: int, trials: int = 200) -> float:
    rng = np.random.default_rng(7)
    found = (median_interval(rng.lognormal(0, 0.3, n), level) for _ in range(trials))
    return sum(interval.low <= 1.0 <= interval.high for interval in found) / trials


def test_an_interval_of_95_percent_covers_the_median_about_as_often():
    assert 0.89 <= _coverage(0.95, n=15) <= 0.99


def test_planted_fault_a_narrower_interval_would_be_seen_by_that_test():
    assert _coverage(0.8, n=15) < 0.89


def test_the_same_samples_always_give_the_same_interval():
    samples = np.random.default_rng(1).normal(5, 1, 20)
    assert median_interval(samples) == median_interval(tuple(samples))


def test_the_median_lies_inside_and_a_higher_level_is_wider():
    samples = np.random.default_rng(2).normal(5, 1, 20)
    narrow, wide = median_interval(samples, 0.5), median_interval(samples, 0.99)
    assert wide.low < narrow.low <= narrow.value <= narrow.high < wide.high
    assert narrow.value == np.median(samples)


def test_too_few_samples_are_refused_in_words():
    with pytest.raises(ValueError, match=f"at least {MIN_SAMPLES}"):
        median_interval([1.0] * (MIN_SAMPLES - 1))


@pytest.mark.parametrize("bad", [[], [1.0] * 8 + [float("nan")], [1.0] * 8 + [float("inf")]])
def test_samples_that_are_no_numbers_are_refused(bad):
    with pytest.raises(ValueError, match="samples|finite"):
        median_interval(bad)


def test_a_paired_ratio_keeps_still_where_the_machine_does_not():
    speed = np.random.default_rng(3).uniform(1, 3, 20)  # the machine, slower in some rounds
    paired = ratio(2.0 * speed, speed)
    assert paired.low == pytest.approx(2.0)
    assert paired.high == pytest.approx(2.0)
    apart = ratio_of_medians(2.0 * speed, speed[::-1])
    assert apart.high - apart.low > 0.5  # not paired, the same noise stays in


def test_ratio_scales_and_refuses_what_is_not_paired():
    ones = [1.0] * 10
    assert ratio([3.0] * 10, ones, scale=2.0).value == 6.0
    with pytest.raises(ValueError, match="one of each per round"):
        ratio(ones, ones[:-1])
    with pytest.raises(ValueError, match="above 0"):
        ratio(ones, [0.0, *ones[1:]])


def test_intervals_refuse_nonsense():
    with pytest.raises(ValueError, match="low <= value <= high"):
        Interval(1.0, 2.0, 3.0)
    with pytest.raises(ValueError, match="finite"):
        Interval(float("nan"), 0.0, 1.0)
    with pytest.raises(ValueError, match="level"):
        median_interval([1.0] * 10, level=95)
    with pytest.raises(ValueError, match="above 0"):
        Interval(2.0, 1.0, 3.0).scaled(-1.0)


def test_scaled_and_exact():
    assert Interval(2.0, 1.0, 3.0, n=9).scaled(10) == Interval(20.0, 10.0, 30.0, n=9)
    assert Interval.exact(5).is_exact
    assert not Interval(2.0, 1.0, 3.0).is_exact
