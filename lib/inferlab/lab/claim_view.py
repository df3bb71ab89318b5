"""How the result of a claim is shown: as HTML, as Markdown, as plain text.

`result` is a `claims.Result` throughout, `case` a `claims.Judged`.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from inferlab.lab import verdicts
from inferlab.lab.intervals import Interval
from inferlab.lab.verdicts import Statement
from inferlab.theory.units import si

_SIGNS = {
    "==": "exactly", "~": "about", ">=": "at least", "<=": "at most", ">": "above", "<": "below",
}  # fmt: skip
_PHYSICAL = ("s", "B", "B/s", "FLOP", "FLOP/s")
_HEADS = ("Regime", "Measured", "The source", "We")


def html(result) -> str:
    """A block with one table, and the same result as JSON in a script element for the ledger."""
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in _columns(result))
    rows = "".join(
        f'<tr><th scope="row">{escape(where)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for where, *cells in _rows(result)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    lines = "".join(f"<p>{escape(line)}</p>" for line in _lines(result))
    return (
        f'<div class="inferlab-claim" id="claim-{escape(result.entry.id)}" '
        f'data-verdict="{escape(result.verdict)}">'
        f"<p><strong>{escape(_title(result))}</strong></p>{lines}{table}"
        f"<p>{escape(status(result))}</p>"
        f'<script type="application/json" class="inferlab-claim">{result.to_json()}</script></div>'
    )


def markdown(result) -> str:
    """The same without the JSON."""
    columns, rows = _columns(result), _rows(result)
    table = [columns, ["---"] * len(columns), *rows] if rows else []
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    parts = [f"**{_title(result)}**", *_lines(result), "\n".join(lines), status(result)]
    return "\n\n".join(part for part in parts if part)


def text(result) -> str:
    """The same for a terminal, one line per case."""
    columns = _columns(result)
    cases = ["  " + "; ".join(_labelled(columns, row)) for row in _rows(result)]
    return "\n".join([_title(result), *_lines(result), *cases, status(result)])


def status(result) -> str:
    """One sentence on whether the claim came out as recorded, and what differs where it did not."""
    entry, sentences = result.entry, []
    if result.as_recorded is None:
        sentences.append(f"No verdict is recorded yet; {entry.foreseen!r} was foreseen.")
    elif result.as_recorded:
        sentences.append("As recorded.")
    else:
        differ = [
            f"{case.regime.id}: {party} {found}, recorded {case.regime.expect[party]}"
            for case in result.cases
            for party, found in case.outcomes.items()
            if found != case.regime.expect[party]
        ]
        sentences.append(f"Not here: {entry.recorded!r} is recorded. {'; '.join(differ)}.")
    if result.missing:
        sentences.append(f"Not tried: {', '.join(r.id for r in result.missing)}.")
    return " ".join(sentences)


def _title(result) -> str:
    entry = result.entry
    return f"Claim {entry.number}, {entry.id}: {_in_words(result)}"


def _in_words(result) -> str:
    """The verdict as a phrase that names the regimes."""
    by_outcome: dict[str, list[str]] = {}
    for case in result.cases:
        if "source" in case.outcomes:
            names = by_outcome.setdefault(case.outcomes["source"], [])
            names += [case.regime.id] * (case.regime.id not in names)
    true = ", ".join(by_outcome.get(verdicts.AGREES, []))
    false = ", ".join(by_outcome.get(verdicts.EXCLUDED, []))
    return {
        verdicts.HOLDS: "holds in every regime tried",
        verdicts.REFINED: f"refined; the source's statement holds for {true} and not for {false}, "
        "ours holds throughout",
        verdicts.WRONG: "wrong; what was measured excludes it in every regime tried",
        verdicts.DEPENDS: f"depends; it holds for {true} and not for {false}",
        verdicts.NOT_TESTABLE: "not testable",
        verdicts.UNDECIDED: "undecided by this measurement",
    }[result.verdict]


def _lines(result) -> list[str]:
    entry = result.entry
    lines = [f"The source ({result.title}): {entry.says}"]
    lines += [f"We say: {entry.we_say}"] * bool(entry.we_say)
    lines += [f"Why not: {entry.why}"] * bool(entry.why)
    if result.cases:
        unit = "" if entry.unit == "1" else f", in {entry.unit}"
        lines.append(f"Measured: {entry.quantity}{unit}.")
    return lines


def _columns(result) -> list[str]:
    ours = any("ours" in case.outcomes for case in result.cases)
    return list(_HEADS if ours else _HEADS[:3])


def _rows(result) -> list[list[str]]:
    return [_row(case, len(_columns(result))) for case in result.cases]


def _row(case, columns: int) -> list[str]:
    where = f"{case.regime.id}: {case.regime.text}"
    cells = [f"{where} ({case.detail})" if case.detail else where, _interval(case)]
    for party in ("source", "ours"):
        stated = case.statements.get(party)
        outcome = case.outcomes.get(party)
        cells.append(f"{_statement(stated, case.unit)}: {outcome}" if stated else "says nothing")
    return cells[:columns]


def _statement(stated: Statement, unit: str) -> str:
    gap, share = "\N{NO-BREAK SPACE}", f"{stated.tolerance * 100:.3g}"
    margin = f" (±{gap}{share}{gap}%)" if stated.tolerance else ""
    return f"{_SIGNS[stated.relation]} {number(stated.value, unit)}{margin}"


def _interval(case) -> str:
    return _span(case.measured, case.unit)


def _span(m: Interval, unit: str) -> str:
    if m.is_exact:
        return number(m.value, unit)
    ends = f"{number(m.low, unit)} to {number(m.high, unit)}"
    return f"{number(m.value, unit)} ({m.level * 100:.3g} % interval {ends}, n = {m.n})"


def measured_text(case: Mapping) -> str:
    """What was measured in a case of `Result.to_dict`, with its interval."""
    m = case["measured"]
    return _span(Interval(m["value"], m["low"], m["high"], m["level"], m["n"]), case["unit"])


def stated_text(case: Mapping, party: str) -> str:
    """What a party states in such a case, and how that came out."""
    if party not in case["statements"]:
        return "says nothing"
    stated = Statement(**case["statements"][party])
    return f"{_statement(stated, case['unit'])}: {case['outcomes'][party]}"


def residual(case: Mapping) -> str:
    """One line on such a case: what was measured, what was stated, how far the one is from the
    other (measured ÷ stated; the difference where 0 is stated).
    """
    parties = [p for p in ("source", "ours") if p in case["statements"]]
    parts = [f"{case['regime']}: {measured_text(case)}"]
    value = case["measured"]["value"]
    for party in parties:
        stated = Statement(**case["statements"][party])
        far = f"{value - stated.value:+.3g}"
        if stated.value:
            far = f"{value / stated.value:.3g} times that"
        who = "the source" if party == "source" else "we"
        says = "says" if party == "source" else "say"
        parts.append(f"{who} {says} {_statement(stated, case['unit'])} ({far})")
    return "; ".join(parts)


def made_on(provenance: Mapping) -> str:
    """Machine, threads, day and commit of a result, in one phrase."""
    machine = provenance.get("accelerator") or provenance.get("cpu") or "unknown machine"
    threads = provenance.get("threads")
    parts = [str(machine)] + ([f"{threads} thread{'s' * (threads != 1)}"] if threads else [])
    parts += [str(provenance.get("date", ""))[:10]]
    if provenance.get("commit"):
        parts.append(f"commit {provenance['commit']}")
    return ", ".join(part for part in parts if part)


def number(value: float, unit: str) -> str:
    """A number as a reader wants it: small counts whole and bare (their unit stands in the line
    above the table), ratios and shares in four digits, what is physical with its prefix and unit.
    """
    if unit == "1":
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.3e}"
    if float(value).is_integer() and abs(value) < 1e6:
        return f"{int(value):,}"
    return si(value, unit) if unit in _PHYSICAL else f"{value:.4g}"


def _labelled(columns: list[str], row: list[str]) -> list[str]:
    pairs = zip(columns[1:], row[1:], strict=True)
    return [row[0], *(f"{label.lower()} {cell}" for label, cell in pairs)]
