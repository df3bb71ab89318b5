"""The directive {ledger}: every claim with its verdict and numbers, gathered from all notebooks.

It reads the executed notebooks of the build, so a page shows what the others measured although each
runs alone. A result of an unknown claim, or a notebook that does not assert a claim that is its
own, is a warning, which stops the build of the book.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from inferlab.book.sphinx import claim_mark
from inferlab.book.sphinx.claims_gathered import Found

__all__ = ["LedgerPage", "setup"]

LOG = logging.getLogger(__name__)


class LedgerPage(SphinxDirective):
    """Emits the table of all claims, and under it an entry for each."""

    def run(self) -> list[nodes.Node]:
        from inferlab.book.sphinx import claim_ledger_view as view
        from inferlab.lab import ledger

        found = claim_mark.gathered(self.env).found
        for file in self.env.found_docs:
            self.env.note_dependency(self.env.doc2path(file))
        places = {id: self._place(hit) for id, hit in found.items()}
        return [_Ledger("", view.element(ledger.read(), found, places), format="html")]

    def _place(self, hit: Found) -> tuple[str, str]:
        """Address and title of the page that made a result, seen from this one."""
        page = self.env.docname
        address = self.env.app.builder.get_relative_uri(page, hit.page)
        return address, hit.page.removeprefix("chapters/")


class _Ledger(nodes.raw):
    """Raw HTML that can be told from other raw HTML, so that its page gets the style."""


def setup(app: Any) -> None:
    """Register the directive and the check of the whole ledger."""
    app.add_directive("ledger", LedgerPage)
    app.add_node(_Ledger, html=(_visit, None))
    app.connect("env-before-read-docs", _check)
    app.connect("html-page-context", _assets)


def _check(app: Any, env: Any, names: list[str]) -> None:
    for fault in claim_mark.gathered(env).faults:
        LOG.warning("%s", fault, type="claims")


def _visit(writer: Any, node: nodes.Node) -> None:
    writer.body.append(node.astext())
    raise nodes.SkipNode


def _assets(app: Any, page: str, template: str, context: dict, doctree: Any) -> None:
    if doctree is not None and next(doctree.findall(_Ledger), None) is not None:
        app.add_css_file("claims.css")
