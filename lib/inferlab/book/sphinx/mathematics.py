"""Loads the two megabytes of MathJax on the pages that have a formula, and on no other."""

from __future__ import annotations

from typing import Any

from sphinx.domains.math import MathDomain

__all__ = ["OwnPageMath", "setup"]


class OwnPageMath(MathDomain):
    """Sphinx's domain of formulas, asked about one page alone.

    Sphinx counts a formula for every page whose table of contents reaches it, so that the first
    page of a book would always load MathJax.
    """

    def has_equations(self, docname: str | None = None) -> bool:
        if docname is None:
            return super().has_equations()
        return bool(self.data["has_equations"].get(docname))


def setup(app: Any) -> None:
    """Put the domain in the place of Sphinx's own."""
    app.add_domain(OwnPageMath, override=True)
