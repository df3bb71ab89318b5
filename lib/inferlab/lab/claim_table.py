"""Several results of claims in one table, each kept whole for the ledger that gathers them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from inferlab.lab import claim_view
from inferlab.lab.claims import Result
from inferlab.lab.views import Table, table


@dataclass(frozen=True)
class Results:
    """Claims that were tested together: shown as one table, and found by `claims.collect`."""

    results: tuple[Result, ...]

    @property
    def table(self) -> Table:
        """One line for each claim: its verdict, and what was measured in each regime."""
        rows = []
        for result in self.results:
            cases = result.to_dict()["cases"]
            found = "; ".join(f"{c['regime']}: {claim_view.measured_text(c)}" for c in cases)
            name = f"{result.entry.number} · {result.entry.id}"
            rows.append((name, result.verdict, claim_view.status(result), found))
        return table(("claim", "verdict", "in the ledger", "measured"), rows)

    def _repr_html_(self) -> str:
        kept = "".join(
            f'<script type="application/json" class="inferlab-claim">{r.to_json()}</script>'
            for r in self.results
        )
        return f'<div class="il-results">{self.table._repr_html_()}{kept}</div>'

    def __repr__(self) -> str:
        return repr(self.table)


def together(results: Iterable[Result]) -> Results:
    """These results as one table."""
    return Results(tuple(results))


def distances(results: Iterable[Result]) -> list[tuple[str, list]]:
    """For each case in which the source states "about" a number: its claim and regime, and the
    interval of measured ÷ stated. As the rows of `plots_factors.factors`.
    """
    rows = []
    for result in results:
        for case in result.cases:
            stated = case.statements.get("source")
            if stated is None or stated.relation != "~" or case.measured.value <= 0:
                continue
            factor = case.measured.scaled(1 / stated.value)
            label = f"{result.entry.number}, {case.regime.id}"
            rows.append((label, [(factor, case.outcomes["source"])]))
    return rows
