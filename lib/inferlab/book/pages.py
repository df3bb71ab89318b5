"""What the book is made of: its root folder, the pages that `_toc.yml` lists, and their digests."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

__all__ = [
    "BookError",
    "WrongUse",
    "digest",
    "find_root",
    "notebook_path",
    "notebooks",
    "pages",
    "replace_folder",
    "scratch",
]

SUFFIXES = (".ipynb", ".md")


class BookError(RuntimeError):
    """The book cannot be made as asked; the message says why and what to do."""


class WrongUse(BookError):
    """What was asked for does not exist; the message says what does."""


def find_root(start: Path | None = None) -> Path:
    """The nearest folder at or above `start` (the current one) that holds `_toc.yml`."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "_toc.yml").is_file():
            return folder
    raise WrongUse(
        f"no _toc.yml in {start} or above it: run this inside the book's checkout, "
        "or name the checkout with --root"
    )


def pages(root: Path) -> tuple[Path, ...]:
    """The pages of the book in reading order, relative to `root`, with their suffix.

    Raises BookError when `_toc.yml` names a page that is not there, or one page twice.
    """
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8")) or {}
    found = []
    for name in _files_in(toc):
        candidates = [Path(name)] if Path(name).suffix in SUFFIXES else []
        candidates += [Path(name + suffix) for suffix in SUFFIXES]
        page = next((c for c in candidates if (root / c).is_file()), None)
        if page is None:
            raise BookError(f"_toc.yml lists {name}, but there is no {name}.ipynb or {name}.md")
        if page in found:
            raise BookError(f"_toc.yml lists {name} twice: a page has one place in the book")
        found.append(page)
    return tuple(found)


def notebooks(root: Path) -> tuple[Path, ...]:
    """The notebooks among `pages`, in reading order, relative to `root`."""
    return tuple(page for page in pages(root) if page.suffix == ".ipynb")


def notebook_path(root: Path, name: str | Path) -> Path:
    """A notebook named on the command line, from the current folder or the root, relative to root.

    Raises WrongUse, listing the book's notebooks, when there is none of that name.
    """
    for base in (Path.cwd(), root):
        file = (base / name).resolve()
        if file.suffix == ".ipynb" and file.is_file() and file.is_relative_to(root):
            return file.relative_to(root)
    known = ", ".join(str(page) for page in notebooks(root)) or "none yet"
    raise WrongUse(f"{name} is not a notebook inside {root}; the book's notebooks are: {known}")


def digest(parts: Iterable[bytes | str | Path]) -> str:
    """SHA-256 over texts, bytes and the contents of files, each part set apart by its length."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            part = part.read_bytes()
        elif isinstance(part, str):
            part = part.encode()
        total.update(len(part).to_bytes(8, "big"))
        total.update(part)
    return total.hexdigest()


@contextmanager
def scratch(parent: Path, prefix: str) -> Iterator[Path]:
    """A temporary folder inside `parent` that is gone afterwards, whatever happens."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=f".{prefix}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replace_folder(new: Path, target: Path) -> None:
    """Put the finished folder `new` in the place of `target`; the old one goes last."""
    old = target.with_name(f".{target.name}-old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _files_in(node: object) -> Iterator[str]:
    """Every `root:` and `file:` of a table of contents, depth first, in order."""
    if isinstance(node, dict):
        for key in ("root", "file"):
            if isinstance(node.get(key), str):
                yield node[key]
        for value in node.values():
            if isinstance(value, (dict, list)):
                yield from _files_in(value)
    elif isinstance(node, list):
        for value in node:
            yield from _files_in(value)
