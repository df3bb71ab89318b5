"""How verdicts follow: every outcome of a statement, every row of the table in `verdicts`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab.lab.intervals import Interval
from inferlab.lab.records import Measurement
from inferlab.lab.verdicts import (
    AGREES,
    EXCLUDED,
    OPEN,
    RELATIONS,
    Statement,
    as_interval,
    verdict,
)

A, E, O = AGREES, EXCLUDED, OPEN  # noqa: E741


@pytest.mark.parametrize(
    ("relation", "value", "tolerance", "low", "high", "outcome"),
    [
        ("==", 40, 0, 40, 40, A),
        ("==", 40, 0, 39, 39, E),
        ("==", 40, 0, 39, 41, O),
        ("==", 0, 0, 0, 0, A),
        ("~", 2, 0.1, 1.8, 2.2, A),
        ("~", 2, 0.1, 1.79, 2.1, O),
        ("~", 2, 0.1, 1.5, 2.5, O),
        ("~", 2, 0.1, 2.21, 3, E),
        ("~", -2, 0.1, -2.1, -1.9, A),
        (">=", 5, 0, 5, 7, A),
        (">=", 5, 0, 4.9, 7, O),
        (">=", 5, 0, 4, 4.9, E),
        (">", 5, 0, 5, 5, E),
        (">", 5, 0, 5, 7, O),
        ("<=", 5, 0, 3, 5, A),
        ("<", 0.1, 0, 0.02, 0.06, A),
        ("<", 0.1, 0, 0.1, 0.2, E),
    ],
)
def test_a_statement_agrees_is_excluded_or_stays_open(
    relation, value, tolerance, low, high, outcome
):
    measured = Interval((low + high) / 2, low, high)
    assert Statement(relation, value, tolerance).outcome(measured) == outcome


numbers = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.sampled_from(RELATIONS), numbers.filter(bool), numbers, numbers, st.floats(0, 1))
def test_a_narrower_interval_never_turns_one_decision_into_the_other(relation, value, a, b, where):
    low, high = sorted((a, b))
    middle = min(max(low + where * (high - low), low), high)
    statement = Statement(relation, value, 0.1 if relation == "~" else 0.0)
    wide = statement.outcome(Interval(middle, low, high))
    exact = statement.outcome(Interval.exact(middle))
    assert exact != OPEN
    assert wide in (OPEN, exact)


@pytest.mark.parametrize(
    ("relation", "value", "tolerance"),
    [("=", 1, 0), ("~", 1, 0), ("~", 0, 0.1), ("~", 1, 1), ("==", 1, 0.1), (">=", 1, 0.1)],
)
def test_statements_that_make_no_sense_are_refused(relation, value, tolerance):
    with pytest.raises(ValueError, match="relation|tolerance"):
        Statement(relation, value, tolerance)


@pytest.mark.parametrize(
    ("source", "ours", "expected"),
    [
        ([A, A], [], "holds"),
        ([A, A], [A, A], "holds"),
        ([A], [E], "holds"),
        ([E, E], [A, A], "wrong"),
        ([E, E], [], "wrong"),
        ([E, E], [A, E], "undecided"),
        ([E, E], [O], "undecided"),
        ([A, E], [A, A], "refined"),
        ([A, E, O], [A, A], "refined"),
        ([A, E], [], "depends"),
        ([A, E], [A, O], "undecided"),
        ([A, O], [], "undecided"),
        ([A, O], [A], "undecided"),
        ([E, O], [A], "undecided"),
        ([O], [], "undecided"),
    ],
)
def test_the_table_of_verdicts(source, ours, expected):
    assert verdict(source, ours) == expected


def test_nothing_judged_is_no_verdict():
    with pytest.raises(ValueError, match="nothing was tested"):
        verdict([], [A])


def test_what_counts_as_measured():
    assert as_interval(3) == Interval(3.0, 3.0, 3.0, level=1.0)
    assert as_interval(np.float32(0.5)).value == 0.5
    assert as_interval(False).value == 0.0
    interval = Interval(2.0, 1.0, 3.0)
    assert as_interval(interval) is interval
    record = Measurement.from_samples("x", [1.0, 2.0, 3.0] * 3, "1", {}, {})
    assert as_interval(record) == record.interval()
    for wrong in ([1.0, 2.0], "3", None):
        with pytest.raises(TypeError, match="not a measured value"):
            as_interval(wrong)
    with pytest.raises(ValueError, match="finite"):
        as_interval(float("nan"))
