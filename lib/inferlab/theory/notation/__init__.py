"""Every letter, sign, word and citation of the book's formulas, each described once."""

from __future__ import annotations

from inferlab.theory.notation import language, machine, money, serving, work
from inferlab.theory.notation.citations import CITATIONS
from inferlab.theory.notation.operations import OPERATIONS, WORDS
from inferlab.theory.notation.terms import (
    ROLES,
    Citation,
    Operation,
    Passage,
    Symbol,
    Word,
    table,
)

__all__ = [
    "CITATIONS",
    "OPERATIONS",
    "ROLES",
    "SYMBOLS",
    "WORDS",
    "Citation",
    "Operation",
    "Passage",
    "Symbol",
    "Word",
    "table",
]

# In the order of the book: what is computed, how much, how fast, for how many, at what price.
SYMBOLS: dict[str, Symbol] = table(
    *(s for part in (language, work, machine, serving, money) for s in part.SYMBOLS.values())
)
