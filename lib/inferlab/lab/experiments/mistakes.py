"""Statements about speed that mislead: what one who believes them expects, and what is found.

A `Finding` is one statement in one regime. Its factor says how many times off the belief is: found
÷ believed or the other way round, as each experiment says, so that a factor above 1 is the error
the statement invites. The experiments are in `mistakes_passes` (passes of a model),
`mistakes_kernels` (single operations) and `mistakes_clock` (requests and clocks).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median as _middle

from inferlab.lab.intervals import Interval
from inferlab.lab.views import Table, table
from inferlab.theory.units import si

NEAR = 1.1
"""A belief that is off by at most this factor does no harm: no decision turns on 10 %."""

MISLEADS, HARMLESS, UNDECIDED = "misleads", "harmless", "undecided"

STATEMENTS = {
    "mfu": "A low MFU in decode means a bad engine",
    "attention": "Attention is negligible",
    "half-bytes": "Half the bytes, twice as fast",
    "quantization-slows": "Quantization slows inference",
    "critical-batch": "Up to 300 tokens share a pass for free",
    "max-of-totals": "A step takes the longer of its two times",
    "grouped-heads": "A quarter of the KV cache, 4 times as fast",
    "ttft": "TTFT is prefill time",
    "mean-itl": "The mean ITL tells the wait",
    "tpot": "TPOT is the whole time ÷ tokens",
    "first-run": "The first run will do",
    "no-wait": "The clock can be read when the call returns",
    "in-cache": "Bandwidth is bandwidth",
    "no-cache": "A small batch needs no KV cache",
    "prompt-answer": "512 tokens read cost less than 8 written",
    "zeros": "Zeros time like data",
}
"""Each statement in a few words, by its id, in the order of the page."""


@dataclass(frozen=True)
class Finding:
    """One statement in one regime.

    statement        its id in `STATEMENTS`
    regime           where this was tried, in words
    believed, found  what the statement promises and what was found, in `unit` ("" for a ratio)
    off              the factor by which the belief is off, with its interval
    at_most          the statement is an inequality: a factor below 1 is no error
    elsewhere        "" where it was measured here; else "predicted" (computed from nameplate
                     figures) or "published" (measured by others)
    """

    statement: str
    regime: str
    believed: float
    found: float
    unit: str
    off: Interval
    at_most: bool = False
    elsewhere: str = ""

    def __post_init__(self) -> None:
        if self.statement not in STATEMENTS:
            raise ValueError(f"no statement {self.statement!r}: there are {', '.join(STATEMENTS)}")

    @property
    def outcome(self) -> str:
        """MISLEADS if the whole interval is beyond `NEAR`, HARMLESS if all of it is within."""
        least = -math.inf if self.at_most else 1 / NEAR
        if least <= self.off.low and self.off.high <= NEAR:
            return HARMLESS
        if self.off.low > NEAR or self.off.high < least:
            return MISLEADS
        return UNDECIDED


def show(findings: Iterable[Finding], believed: str, found: str, caption: str = "") -> Table:
    """The findings as a table; `believed` and `found` say what the two numbers are."""
    rows = [
        [one.regime, _number(one.believed, one.unit), _number(one.found, one.unit), times(one),
         one.elsewhere or one.outcome]
        for one in findings
    ]  # fmt: skip
    return table(["", believed, found, "times off (95 %)", ""], rows, caption)


def times(one: Finding) -> str:
    """The factor with its interval: "3.1 (2.9 to 3.3)"."""
    off = one.off
    if off.is_exact:
        return f"{off.value:.2f}"
    return f"{off.value:.2f} ({off.low:.2f} to {off.high:.2f})"


def median(samples: Iterable[float]) -> float:
    """The middle of the samples, as a plain number."""
    return float(_middle(samples))


def worst(findings: Sequence[Finding]) -> Finding:
    """The finding, measured here, whose belief is off by most, in whichever direction it errs.

    Raises ValueError where nothing was measured.
    """
    measured = [one for one in findings if not one.elsewhere]
    if not measured:
        raise ValueError("none of these findings was measured")
    return max(measured, key=distance)


def distance(one: Finding) -> float:
    """|ln factor|: how far the belief is off; for an inequality ln factor, below 0 if it holds."""
    far = math.log(one.off.value)
    return far if one.at_most else abs(far)


def data(groups: Iterable[Sequence[Finding]]) -> list[dict]:
    """One plain row per finding, for a figure's download."""
    return [
        {"statement": STATEMENTS[one.statement], "regime": one.regime, "promised": one.believed,
         "found": one.found, "unit": one.unit, "times off": one.off.value, "low": one.off.low,
         "high": one.off.high, "rounds": one.off.n,
         "outcome": one.elsewhere or one.outcome}
        for group in groups for one in group
    ]  # fmt: skip


def _number(value: float, unit: str) -> str:
    if unit in ("", "×"):
        return f"{value:.3g}" + (" ×" if unit else "")
    return f"{value:.0f} {unit}" if unit == "tokens" else si(value, unit)
