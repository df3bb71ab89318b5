"""Latency on a timeline of token times, and the wrong ways to compute it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab.theory.latency import Timeline

gaps = st.lists(st.floats(0, 10), min_size=2, max_size=30)


def test_a_timeline_worked_by_hand():
    # Sent at 10 s, first token after 0.5 s, then every 0.1 s.
    line = Timeline(10.0, (10.5, 10.6, 10.7, 10.8))
    assert line.n == 4
    assert line.ttft == pytest.approx(0.5)
    assert line.itl == pytest.approx((0.1, 0.1, 0.1))
    assert line.tpot == pytest.approx(0.1)
    assert line.e2e == pytest.approx(0.8)


def test_planted_faults_give_other_numbers():
    line = Timeline(0.0, (1.0, 1.1, 1.2, 1.3))
    assert line.tpot != pytest.approx(line.e2e / line.n)  # prefill inside the mean
    assert line.tpot != pytest.approx((1.3 - 1.0) / 4)  # n tokens over n intervals


@given(st.floats(-1e3, 1e3), gaps)
def test_identities(sent, steps):
    times, now = [], sent
    for step in steps:
        now += step
        times.append(now)
    line = Timeline(sent, times)
    assert sum(line.itl) == pytest.approx((line.n - 1) * line.tpot, abs=1e-9)
    assert line.e2e == pytest.approx(line.ttft + (line.n - 1) * line.tpot, abs=1e-9)
    assert min(line.itl) <= line.tpot + 1e-9
    assert line.tpot <= max(line.itl) + 1e-9


def test_undefined_is_refused():
    with pytest.raises(ValueError, match="TPOT is undefined for 1"):
        _ = Timeline(0.0, (1.0,)).tpot
    with pytest.raises(ValueError, match="no output token"):
        _ = Timeline(0.0, ()).ttft
    assert Timeline(0.0, (1.0,)).itl == ()
    assert Timeline(0.0, (1.0,)).e2e == 1.0


@pytest.mark.parametrize(
    ("sent", "tokens"), [(1.0, (0.5,)), (0.0, (2.0, 1.0)), (0.0, (1.0, float("nan")))]
)
def test_time_does_not_run_backwards(sent, tokens):
    with pytest.raises(ValueError, match="go backwards"):
        Timeline(sent, tokens)
