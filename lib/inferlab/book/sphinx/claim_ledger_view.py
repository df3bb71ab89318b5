"""The ledger as HTML: one table of verdicts, then an entry for each claim with its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from html import escape

from inferlab.book.sphinx.claim_mark import SIGNS
from inferlab.book.sphinx.claims_gathered import Found
from inferlab.lab import claim_view
from inferlab.lab.ledger import Entry, Ledger

UNTESTED = "not yet tested"


def element(book: Ledger, found: Mapping[str, Found], places: Mapping[str, tuple[str, str]]) -> str:
    """All claims. `places`: address and name of the page that made each result."""
    verdicts = {id: _verdict(book[id], found.get(id)) for id in book}
    counts = Counter(verdicts.values())
    order = [verdict for verdict in SIGNS if counts[verdict]]
    sums = ", ".join(f"{counts[v]} {v}" for v in order)
    rows = "".join(_row(book[id], verdicts[id]) for id in book)
    entries = "".join(_entry(book, id, verdicts[id], found.get(id), places) for id in book)
    head = "".join(f'<th scope="col">{h}</th>' for h in ("Claim", "Verdict", "The source says"))
    return (
        f'<div class="il-ledger"><p>{len(book)} claims: {sums}.</p>'
        f'<div class="il-table"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{entries}</div>"
    )


def _verdict(entry: Entry, hit: Found | None) -> str:
    if not entry.regimes:
        return "not testable"
    return hit.result["verdict"] if hit else UNTESTED


def _badge(verdict: str) -> str:
    sign = f'<span aria-hidden="true">{SIGNS[verdict]}</span>'
    return f'<span class="il-verdict" data-verdict="{verdict}">{sign} {verdict}</span>'


def _row(entry: Entry, verdict: str) -> str:
    link = f'<a href="#ledger-{entry.id}">{entry.number}</a>'
    return (
        f'<tr><th scope="row">{link}</th><td>{_badge(verdict)}</td><td>{escape(entry.says)}</td>'
        "</tr>"
    )


def _entry(
    book: Ledger,
    id: str,
    verdict: str,
    hit: Found | None,
    places: Mapping[str, tuple[str, str]],
) -> str:
    entry = book[id]
    where = f"{book.titles[entry.file]}, {entry.section}"
    parts = [
        f"<h3>{entry.number} · {escape(id)} {_badge(verdict)}</h3>",
        f"<p><em>The source</em> ({escape(where)}): {escape(entry.says)}</p>",
        f"<p><em>We say</em>: {escape(entry.we_say)}</p>" if entry.we_say else "",
        f"<p><em>Why it cannot be tested</em>: {escape(entry.why)}</p>" if entry.why else "",
    ]
    if entry.regimes:
        parts.append(_numbers(entry, hit) if hit else _regimes(entry))
    if hit:
        parts.append(f"<p>{_made(hit, places[id])}</p>")
    elif entry.regimes:
        parts.append(f"<p>Not yet tested: its page is to be {escape(entry.notebook)}.</p>")
    return f'<section class="il-entry" id="ledger-{id}">{"".join(parts)}</section>'


def _numbers(entry: Entry, hit: Found) -> str:
    """A table of regimes: what was measured, and how each statement came out."""
    ours = any("ours" in case["outcomes"] for case in hit.result["cases"])
    parties = ("source", "ours") if ours else ("source",)
    heads = ["Where", "Measured", "The source", "We"][: 2 + len(parties)]
    head = "".join(f'<th scope="col">{h}</th>' for h in heads)
    body = ""
    for case in hit.result["cases"]:
        cells = [claim_view.measured_text(case)]
        cells += [claim_view.stated_text(case, party) for party in parties]
        where = case["text"] + (f" ({case['detail']})" if case["detail"] else "")
        body += f'<tr><th scope="row">{escape(where)}</th>'
        body += "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
    unit = "" if entry.unit == "1" else f", in {entry.unit}"
    return (
        f"<p>Measured: {escape(entry.quantity + unit)}.</p>"
        f'<div class="il-table"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _regimes(entry: Entry) -> str:
    items = "".join(f"<li>{escape(regime.text)}</li>" for regime in entry.regimes)
    return f"<p>To be measured: {escape(entry.quantity)}, in these cases:</p><ul>{items}</ul>"


def _made(hit: Found, place: tuple[str, str]) -> str:
    """Where, on what and when, and whether it came out as recorded."""
    address, name = place
    result, made = hit.result, hit.result["provenance"]
    as_recorded = {
        True: "As recorded.",
        False: f"Not here: {result['recorded']} is recorded.",
        None: f"No verdict is recorded yet; {result['foreseen']} was foreseen.",
    }[result["as_recorded"]]
    left = f" Not tried: {', '.join(result['missing'])}." if result["missing"] else ""
    page = f'<a href="{escape(address)}">{escape(name)}</a>' if address else "On this page"
    return f"{page}, {escape(claim_view.made_on(made))}. {as_recorded}{left}"
