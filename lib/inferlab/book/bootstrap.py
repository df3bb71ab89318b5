"""The one cell that lets a notebook run where the library is not installed, the same in each.

`inferlab bootstrap` writes it with the address of the repository and the version of the library,
and the notebooks are committed with it: Google Colab opens them as they lie in the repository.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from inferlab.book import pages
from inferlab.data import write_atomically

__all__ = [
    "TAGS", "address_in", "find", "insert", "notebooks", "source", "sync", "without_address",
]  # fmt: skip

ID = "bootstrap"
TAGS = ["bootstrap", "hide-input"]

TEMPLATE = """\
# Installs the book's library where it is missing, as on Colab
import sys
from importlib import import_module, util
from subprocess import PIPE, run

book = "{book}"
missing = util.find_spec("inferlab") is None
if missing and not book:
    raise RuntimeError("Set book to git+https://github.com/OWNER/NAME")
if missing:
    pip = ["-m", "pip", "install", "-q", "--no-deps", book]
    done = run([sys.executable, *pip], stderr=PIPE, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
import_module("inferlab.here").here(new=missing)"""


def source(address: str, version: str) -> str:
    """The text of the cell. `address` is "" as long as the book has no repository."""
    return TEMPLATE.format(book=f"git+{address}@v{version}" if address else "")


def address_in(text: str) -> str:
    """The address that the text of such a cell installs from, "" if it knows none."""
    match = re.search(r'^book = "(?:git\+(.+)@v[^@"]+)?"$', text, re.MULTILINE)
    if match is None:
        raise ValueError("this is no bootstrap cell: it does not say what book it installs")
    return match[1] or ""


def notebooks(root: Path) -> list[Path]:
    """Every notebook under chapters/, listed in the table of contents or not yet."""
    found = (root / "chapters").rglob("*.ipynb")
    return sorted(n for n in found if not any(part.startswith((".", "_")) for part in n.parts[-2:]))


def find(node: NotebookNode) -> NotebookNode | None:
    """The cell tagged `bootstrap`, if the notebook has one."""
    tagged = (c for c in node.cells if "bootstrap" in c.metadata.get("tags", ()))
    return next(tagged, None)


def without_address(root: Path) -> bool:
    """Whether the cell of some notebook of the book names no repository to install from."""
    cells = [find(nbformat.read(root / n, as_version=4)) for n in pages.notebooks(root)]
    return any(cell is not None and not address_in(cell.source) for cell in cells)


def insert(node: NotebookNode, text: str) -> bool:
    """Put the cell with this text right after the title; False where it stood there already."""
    cell = new_code_cell(text, id=ID, metadata={"tags": list(TAGS)})
    if len(node.cells) > 1 and node.cells[1] == cell:
        return False
    rest = [c for c in node.cells if "bootstrap" not in c.metadata.get("tags", ())]
    node.cells = [*rest[:1], cell, *rest[1:]]
    return True


def sync(root: Path, address: str, version: str) -> list[Path]:
    """Insert or update the cell in every notebook; returns those that were changed."""
    changed = []
    for file in notebooks(root):
        node = nbformat.read(file, as_version=4)
        if insert(node, source(address, version)):
            write_atomically(file, nbformat.writes(node) + "\n")
            changed.append(file.relative_to(root))
    return changed
