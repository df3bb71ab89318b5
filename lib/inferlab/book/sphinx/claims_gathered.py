"""The ledger gathered from the executed notebooks, and what is wrong with it."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inferlab.lab.ledger import Ledger

__all__ = ["LEDGER_PAGE", "Found", "Gathered", "gather"]

LEDGER_PAGE = "chapters/07_sources/claims"
"""The page that shows the whole ledger, and that marks in the text lead to."""


@dataclass(frozen=True)
class Found:
    """A result (`claims.Result.to_dict`) and the page whose notebook made it."""

    page: str
    result: Mapping


@dataclass(frozen=True)
class Gathered:
    """What the executed notebooks say, by claim, and the faults that stop a build.

    A claim's own notebook (`Entry.notebook`) comes first; where it is not in the book yet, the
    result of another page stands in, such as the trials of the ledger page.
    """

    found: Mapping[str, Found]
    faults: tuple[str, ...]


def gather(source: Path, pages: tuple[str, ...]) -> Gathered:
    """Read the results in the notebooks among `pages`, names under `source` without a suffix.

    Faults: a result of a claim that the ledger does not have; a claim whose notebook is among the
    pages and does not assert it.
    """
    files = [(page, source / f"{page}.ipynb") for page in pages]
    present = tuple((page, file, file.stat().st_mtime_ns) for page, file in files if file.exists())
    return _gather(present)


@functools.lru_cache(maxsize=2)
def _gather(files: tuple[tuple[str, Path, int], ...]) -> Gathered:
    from inferlab.lab import claims, ledger

    book = ledger.read()
    found: dict[str, Found] = {}
    faults = []
    for page, file, _ in files:
        for result in claims.collect(json.loads(file.read_text(encoding="utf-8"))):
            id = result["id"]
            if id not in book:
                faults.append(f"{page}: claim {id!r} is not in data/claims.yml")
            elif id not in found or page == _page(book, id):
                found[id] = Found(page, result)
    pages = {page for page, _, _ in files}
    for id in book:
        own = _page(book, id)
        if own in pages and book[id].regimes and (id not in found or found[id].page != own):
            faults.append(f"{own}: this notebook is to assert claim {id!r}, and does not")
    return Gathered(found, tuple(faults))


def _page(book: Ledger, id: str) -> str:
    return f"chapters/{book[id].notebook}"
