"""The role {claim}`id`: a small sign beside a sentence that was tested, with what came out.

A link to the ledger's entry, with the verdict in its name for a screen reader and the numbers in a
note that shows on hover and on focus, with no script. Where nothing was measured yet the sign says
so. An id that is not in the ledger is a warning, which stops the build of the book.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

from inferlab.book.sphinx import claims_gathered
from inferlab.book.sphinx.claims_gathered import LEDGER_PAGE

__all__ = ["Mark", "setup"]

STATIC = Path(__file__).parent / "static"
SIGNS = {
    "holds": "✓", "refined": "≈", "depends": "◐", "wrong": "✗", "not testable": "–",
    "undecided": "?", "not yet tested": "○",
}  # fmt: skip
LOG = logging.getLogger(__name__)


class _Mark(nodes.Inline, nodes.TextElement):
    """The sign; attributes: claim, number, verdict, note."""


class Mark(SphinxRole):
    """{claim}`bytes-per-step`."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        from inferlab.lab import ledger

        book, id = ledger.read(), self.text.strip()
        try:
            entry = book[id]
        except ValueError as fault:
            LOG.warning("%s", fault, location=self.get_location())
            return [], []
        found = gathered(self.env).found.get(id)
        verdict = found.result["verdict"] if found else "not yet tested"
        if not entry.regimes:
            verdict = "not testable"
        note = _note(found.result) if found else entry.why
        mark = _Mark("", claim=id, number=entry.number, verdict=verdict, note=note)
        return [mark], []


def gathered(env: Any) -> claims_gathered.Gathered:
    """What the executed notebooks among the pages of this build say."""
    return claims_gathered.gather(Path(env.srcdir), tuple(sorted(env.found_docs)))


def setup(app: Any) -> None:
    """Register the role, its node, and where its style is."""
    app.add_role("claim", Mark())
    app.add_node(_Mark, html=(_visit, None), latex=(_text, None), text=(_text, None))
    app.connect("builder-inited", _static)
    app.connect("html-page-context", _assets)


def _note(result: dict) -> str:
    """What was measured in each regime, and how far from the statement: one line each."""
    from inferlab.lab.claim_view import residual

    return "\n".join(residual(case) for case in result["cases"])


def _visit(writer: Any, node: nodes.Node) -> None:
    verdict, id = node["verdict"], node["claim"]
    serial = sum(1 for part in writer.body if 'class="il-claim"' in part)
    anchor = f"claim-note-{id}-{serial}"
    name = f"Claim {node['number']}: {verdict}"
    note = "".join(f"<span>{escape(line)}</span>" for line in node["note"].splitlines())
    inside = f'<span aria-hidden="true">{SIGNS[verdict]}&#8239;{node["number"]}</span>'
    about = f'class="il-mark" data-verdict="{verdict}" aria-describedby="{anchor}"'
    if LEDGER_PAGE in writer.builder.env.found_docs:
        here = writer.builder.current_docname
        place = writer.builder.get_relative_uri(here, LEDGER_PAGE)
        sign = f'<a {about} href="{place}#ledger-{id}" aria-label="{name}">{inside}</a>'
    else:
        sign = f'<span {about} tabindex="0" role="note" aria-label="{name}">{inside}</span>'
    writer.body.append(
        f'<span class="il-claim">{sign}<span class="il-note" role="tooltip" id="{anchor}">'
        f"<strong>{name}</strong>{note}</span></span>"
    )
    raise nodes.SkipNode


def _text(writer: Any, node: nodes.Node) -> None:
    words = f" [claim {node['number']}: {node['verdict']}]"
    (writer.add_text if hasattr(writer, "add_text") else writer.body.append)(words)
    raise nodes.SkipNode


def _static(app: Any) -> None:
    if str(STATIC) not in app.config.html_static_path:
        app.config.html_static_path.append(str(STATIC))


def _assets(app: Any, page: str, template: str, context: dict, doctree: Any) -> None:
    if doctree is not None and next(doctree.findall(_Mark), None) is not None:
        app.add_css_file("claims.css")
