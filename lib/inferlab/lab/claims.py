"""claim(): one statement of a source, held against a measurement, with a verdict that is computed.

The statements, their tolerances and the regimes stand in `data/claims.yml`; a notebook brings what
it measured. How a verdict follows is in `verdicts`; nobody types one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from inferlab.lab import host, ledger, verdicts
from inferlab.lab.claim_view import html, markdown, text
from inferlab.lab.ledger import Entry, Ledger, Regime
from inferlab.lab.verdicts import Case, Statement, as_interval

__all__ = ["Case", "ClaimFailed", "Judged", "Result", "claim", "collect", "strict_by_default"]

STRICT = "INFERLAB_CI"
_SCRIPT = re.compile(r'<script type="application/json" class="inferlab-claim">(.*?)</script>', re.S)


class ClaimFailed(AssertionError):
    """A claim did not come out as recorded, in a run that is strict about it."""


@dataclass(frozen=True)
class Judged:
    """One case with its outcomes: {"source": …, "ours": …}, a party left out that says nothing."""

    regime: Regime
    detail: str
    measured: verdicts.Interval
    unit: str
    statements: Mapping[str, Statement]
    outcomes: Mapping[str, str]

    @property
    def as_expected(self) -> bool:
        """Whether every outcome is the one the ledger expects in this regime."""
        return dict(self.outcomes) == dict(self.regime.expect)

    def to_dict(self) -> dict:
        """Plain JSON values."""
        m = self.measured
        return {
            "regime": self.regime.id, "text": self.regime.text, "detail": self.detail,
            "unit": self.unit, "outcomes": dict(self.outcomes), "expected": self.as_expected,
            "measured": {
                "value": m.value, "low": m.low, "high": m.high, "level": m.level, "n": m.n,
            },
            "statements": {
                party: {"relation": s.relation, "value": s.value, "tolerance": s.tolerance}
                for party, s in self.statements.items()
            },
        }  # fmt: skip


@dataclass(frozen=True)
class Result:
    """A claim, tested: its cases, the verdict, and whether it came out as recorded.

    verdict  computed: "holds", "refined", "wrong", "depends", "not testable" or "undecided"
    missing  regimes of the ledger that were not tried, those left out that need what is not here
    """

    entry: Entry
    title: str
    cases: tuple[Judged, ...]
    verdict: str
    missing: tuple[Regime, ...]
    provenance: Mapping

    @property
    def as_recorded(self) -> bool | None:
        """True when verdict and outcomes are as the ledger has them for the regimes tried; None
        when it has none recorded yet.
        """
        if self.entry.recorded is None:
            return None
        tried = [case.regime.id for case in self.cases]
        regimes = tuple(r for r in self.entry.regimes if r.id in tried)
        expected = self.entry.expected(regimes)
        return self.verdict == expected and all(case.as_expected for case in self.cases)

    def to_dict(self) -> dict:
        """Plain JSON values, as `collect` finds them in an executed notebook."""
        return {
            "schema": 1, "id": self.entry.id, "number": self.entry.number,
            "verdict": self.verdict, "recorded": self.entry.recorded,
            "foreseen": self.entry.foreseen, "as_recorded": self.as_recorded,
            "cases": [case.to_dict() for case in self.cases],
            "missing": [regime.id for regime in self.missing],
            "provenance": dict(self.provenance),
        }  # fmt: skip

    def to_json(self) -> str:
        """JSON that may stand inside an HTML script element: no <, > or & is in it."""
        plain = json.dumps(self.to_dict(), allow_nan=False)
        for sign in "<>&":
            plain = plain.replace(sign, f"\\u{ord(sign):04x}")
        return plain

    def _repr_html_(self) -> str:
        return html(self)

    def _repr_markdown_(self) -> str:
        return markdown(self)

    def __repr__(self) -> str:
        return text(self)


def claim(
    id: str,
    cases: Iterable[Case] | Mapping[str, object] = (),
    *,
    measured: object = None,
    source: float | None = None,
    ours: float | None = None,
    detail: str = "",
    device: str = "cpu",
    strict: bool | None = None,
    book: Ledger | None = None,
) -> Result:
    """Test the claim `id` of `data/claims.yml` with what was measured; the verdict is computed.

    cases     one `Case` per regime, or {regime id: what was measured}
    measured  short for the one case of a claim with one regime, with source, ours, detail
    device    where it ran, for the provenance
    strict    True: raise ClaimFailed unless the claim comes out as recorded, every regime that
              this machine can try was tried, and a verdict was recorded. False: a reader's machine
              may differ, and the result says so. None: `strict_by_default()`
    book      another ledger (`ledger.read(path)`)

    A measured value is an `Interval` (paired(...).ratio()), a `Measurement`, or, where the ledger
    does not say that it is taken by the clock, a count (a number). Raises ValueError for an unknown
    claim or regime, a statement's number that is missing or is in the ledger already, a clock's
    value without an interval of at least 95 %, or no case at all; TypeError for what is no measured
    value.

    >>> claim("bytes-per-step", {"fp32": 1.0, "bf16": 1.0, "clock": Interval(1.4, 1.3, 1.5)})
    """
    book = book or ledger.read()
    entry = book[id]
    tried = _cases(entry, cases, measured, source, ours, detail)
    judged = tuple(_judge(entry, case) for case in tried)
    names = {case.regime.id for case in judged}
    missing = tuple(r for r in entry.regimes if r.id not in names and _can_try(r))
    title, where = book.titles[entry.file], host.provenance(device)
    result = Result(entry, title, judged, _verdict(entry, judged), missing, where)
    if strict_by_default() if strict is None else strict:
        _insist(result)
    return result


def strict_by_default() -> bool:
    """Whether claims are strict where the caller does not say: with INFERLAB_CI set in the
    environment to anything but 0, as the tests of the project set it.
    """
    return os.environ.get(STRICT, "0") not in ("", "0")


def collect(notebook: Mapping) -> list[dict]:
    """The results (`Result.to_dict`) in the outputs of an executed notebook, in their order.

    notebook  its JSON. They are read from the HTML of the outputs, which survives every tool that
    keeps outputs at all.
    """
    found = []
    for cell in notebook.get("cells", []):
        for output in cell.get("outputs", []):
            page = output.get("data", {}).get("text/html", "")
            page = page if isinstance(page, str) else "".join(page)
            found += [json.loads(match) for match in _SCRIPT.findall(page)]
    return found


def _cases(entry: Entry, cases, measured, source, ours, detail: str) -> list[Case]:
    if measured is not None:
        if cases or len(entry.regimes) != 1:
            raise ValueError(
                f"measured= is for the one case of a claim with one regime; {entry.id!r} has "
                f"{', '.join(r.id for r in entry.regimes) or 'none'}: pass cases"
            )
        return [Case(entry.regimes[0].id, measured, source, ours, detail)]
    if isinstance(cases, Mapping):
        return [Case(regime, value) for regime, value in cases.items()]
    return list(cases)


def _judge(entry: Entry, case: Case) -> Judged:
    regime = entry.regime(case.regime)
    measured = as_interval(case.measured)
    if (regime.by or entry.by) == "clock" and (measured.is_exact or measured.level < 0.95):
        raise ValueError(
            f"{entry.id}, {regime.id} is taken by the clock: pass an interval of 95 % or more "
            "(paired(...).ratio(), a Measurement), not one number"
        )
    statements, outcomes = {}, {}
    for party in ledger.PARTIES:
        claimed, given = entry.claimed(party, regime), getattr(case, party)
        if claimed is None:
            if given is not None:
                raise ValueError(f"{entry.id}, {regime.id}: {party} says nothing in this regime")
            continue
        try:
            statement = claimed.at(given)
        except ValueError as fault:
            raise ValueError(f"{entry.id}, {regime.id}, {party}: {fault}") from None
        if statement is None:
            raise ValueError(
                f"{entry.id}, {regime.id}: the case has to bring {party}=, which is "
                f"{claimed.formula}"
            )
        statements[party], outcomes[party] = statement, statement.outcome(measured)
    unit = regime.unit or entry.unit
    return Judged(regime, case.detail, measured, unit, statements, outcomes)


def _verdict(entry: Entry, judged: tuple[Judged, ...]) -> str:
    if entry.kind in ledger.UNTESTABLE:
        return verdicts.NOT_TESTABLE
    source, ours = ([j.outcomes[p] for j in judged if p in j.outcomes] for p in ledger.PARTIES)
    if not source:
        raise ValueError(
            f"claim {entry.id!r} needs a case in which the source's statement is judged: "
            f"{', '.join(r.id for r in entry.regimes if 'source' in r.expect)}"
        )
    return verdicts.verdict(source, ours)


def _can_try(regime: Regime) -> bool:
    return {"cuda": torch.cuda.is_available(), "bound": False}.get(regime.needs, True)


def _insist(result: Result) -> None:
    entry = result.entry
    if entry.recorded is None:
        why = f"no verdict is recorded: set recorded: {result.verdict} if this run is sound"
    elif result.missing:
        why = f"these regimes were not tried: {', '.join(r.id for r in result.missing)}"
    elif not result.as_recorded:
        why = f"{entry.recorded!r} is recorded, and a regime came out otherwise"
    else:
        return
    raise ClaimFailed(f"claim {entry.number} {entry.id!r}: {why}\n{text(result)}")
