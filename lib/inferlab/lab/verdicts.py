"""How a verdict follows from statements and measurements. Pure logic: no clock, no file, no text.

A statement is judged against an interval, with three outcomes:
- *agrees*: the whole interval lies where the statement, with its tolerance, says;
- *excluded*: no point of the interval lies there;
- *open*: some do and some do not; the measurement is too wide to tell.
A count is an interval without width, so it is never open.

The verdict on the source follows from its outcomes S, one per case, and those of our own statement
O where we have one (`verdict`):

| verdict     | S                                       | O                                       |
| holds       | all agree                               | not asked                               |
| wrong       | all excluded                            | we have none, or all agree              |
| refined     | one or more agree, one or more excluded | all agree                               |
| depends     | one or more agree, one or more excluded | we have none                            |
| undecided   | anything else                           |                                         |

So *refined* and *wrong* differ in the source alone. Both times our statement covers every regime;
refined, the source's is still true in some regime that was tried, wrong, it is true in none.
*Depends* is what is left where the source fails somewhere and we know no statement that covers
every regime. *Undecided* is no verdict on the source but on the measurement, or on us. A definition
or a norm is *not testable* whatever was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inferlab.lab.intervals import Interval
from inferlab.lab.records import Measurement

AGREES, EXCLUDED, OPEN = "agrees", "excluded", "open"
HOLDS, REFINED, WRONG, DEPENDS = "holds", "refined", "wrong", "depends"
NOT_TESTABLE, UNDECIDED = "not testable", "undecided"
VERDICTS = (HOLDS, REFINED, WRONG, DEPENDS, NOT_TESTABLE)
"""What a claim can be recorded as; `UNDECIDED` is an outcome of a run, never recorded."""

RELATIONS = ("==", "~", ">=", "<=", ">", "<")


@dataclass(frozen=True)
class Statement:
    """A relation to a number: "~" 2 with relative tolerance 0.1 is the band from 1.8 to 2.2.

    "==" takes no tolerance and is for counts; inequalities take none either, their bound is all
    they say. Raises ValueError for a relation that is none, a tolerance out of place, or "~" 0.
    """

    relation: str
    value: float
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if self.relation not in RELATIONS:
            raise ValueError(f"unknown relation {self.relation!r}: there are {RELATIONS}")
        if self.relation == "~" and not (0 < self.tolerance < 1 and self.value != 0):
            raise ValueError(
                f"{self}: '~' takes a tolerance between 0 and 1, relative to a value that is not 0"
            )
        if self.relation != "~" and self.tolerance:
            raise ValueError(f"{self}: only '~' takes a tolerance")

    def outcome(self, measured: Interval) -> str:
        """AGREES, EXCLUDED or OPEN for what was measured."""
        inside = [self._true_of(x) for x in (measured.low, measured.high)]
        if all(inside):
            return AGREES
        if any(inside) or self._spans(measured):
            return OPEN
        return EXCLUDED

    def _true_of(self, x: float) -> bool:
        low, high = self._band()
        return {
            "==": x == self.value,
            "~": low <= x <= high,
            ">=": x >= self.value,
            "<=": x <= self.value,
            ">": x > self.value,
            "<": x < self.value,
        }[self.relation]

    def _spans(self, measured: Interval) -> bool:
        """True when the interval reaches beyond the band on both sides."""
        low, high = self._band()
        return self.relation in ("==", "~") and measured.low <= low and high <= measured.high

    def _band(self) -> tuple[float, float]:
        margin = self.tolerance * abs(self.value)
        return self.value - margin, self.value + margin


@dataclass(frozen=True)
class Case:
    """What was measured in one regime, and what the two statements expect there.

    regime    an id that the ledger lists for the claim; several cases may share one
    measured  a count (int, float, bool), a Measurement (its interval is taken) or an Interval
    source    the number the source states here, where the ledger leaves it to the case
    ours      the number we state here, likewise
    detail    what exactly was run ("smollm2-135m, P = 41, G = 60")
    """

    regime: str
    measured: Interval | Measurement | float
    source: float | None = None
    ours: float | None = None
    detail: str = ""


def as_interval(measured: Interval | Measurement | float) -> Interval:
    """What was measured as an interval; a bare number is exact: a count.

    Raises TypeError for anything else: samples have to be made a Measurement first.
    """
    if isinstance(measured, Interval):
        return measured
    if isinstance(measured, Measurement):
        return measured.interval()
    if hasattr(measured, "__len__") or not hasattr(measured, "__float__"):
        raise TypeError(
            f"a {type(measured).__name__} is not a measured value: pass a count, an Interval "
            "(paired(...).ratio()), or a Measurement"
        )
    return Interval.exact(float(measured))


def verdict(source: Sequence[str], ours: Sequence[str] = ()) -> str:
    """The verdict that follows from the outcomes of the source's statement and of ours.

    Raises ValueError when the source was judged in no case: then nothing was tested.
    """
    if not source:
        raise ValueError("no case judges the source's statement: nothing was tested")
    kinds = set(source)
    if kinds == {AGREES}:
        return HOLDS
    if any(outcome != AGREES for outcome in ours):
        return UNDECIDED
    if kinds == {EXCLUDED}:
        return WRONG
    if {AGREES, EXCLUDED} <= kinds:
        return REFINED if ours else DEPENDS
    return UNDECIDED
