"""The seven depths at which the book answers its question, and the pages of each.

A page belongs to the depth whose number its folder begins with: `chapters/04_math/flops`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

__all__ = ["DEPTHS", "Depth", "deeper", "depth_of", "pages_of"]


@dataclass(frozen=True)
class Depth:
    """One way through the book: its number, its name, and what it tells."""

    number: int
    name: str
    about: str

    @property
    def title(self) -> str:
        """As it stands in the table of contents: "4 · The math"."""
        return f"{self.number} · {self.name}"


DEPTHS = (
    Depth(1, "The answer", "One prompt and its answer: what happens, how long it takes, its cost."),
    Depth(2, "Intuition", "Why reading is fast and writing is slow, without a formula."),
    Depth(3, "Mechanics", "What limits each of the two phases, and what the cache is for."),
    Depth(4, "The math", "Operations and bytes counted, and times predicted from the counts."),
    Depth(5, "The code", "A model in twenty lines, then each step that makes it fast."),
    Depth(6, "The economics", "From seconds to money: what a request costs, and what pays it."),
    Depth(7, "Sources", "What was checked, what turned out wrong, and on which machines."),
)


def depth_of(page: str) -> Depth | None:
    """The depth of a page, by its folder; None for a page beside the depths."""
    for part in PurePosixPath(page).parts[:-1]:
        match = re.match(r"0(\d)_", part)
        if match:
            return next((depth for depth in DEPTHS if depth.number == int(match[1])), None)
    return None


def pages_of(depth: Depth, pages: Sequence[str]) -> list[str]:
    """Those of the pages that belong to a depth, in their order."""
    return [page for page in pages if depth_of(page) == depth]


def deeper(page: str, pages: Sequence[str]) -> str | None:
    """The first page of the next depth that has pages; None below the last of them.

    From a page beside the depths that is the first page of the first depth.
    """
    here = depth_of(page)
    below = (d for d in DEPTHS if here is None or d.number > here.number)
    return next((found[0] for depth in below if (found := pages_of(depth, pages))), None)
