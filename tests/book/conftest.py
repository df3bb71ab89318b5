"""A book of a few lines, made anew for each test."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rich.console import Console

from inferlab.book import browser

CHECKOUT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `browser` are skipped where there is none; in CI they run, and fail."""
    if browser.find_browser() is None and not os.environ.get("CI"):
        skip = pytest.mark.skip(reason=f"no Chrome or Chromium: {browser.browser_help()}")
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(skip)


class Book:
    """A checkout with notebooks given as lists of cells: (kind or tag, source)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stage = root / "_build" / "stage"
        self.files: list[str] = []
        config = yaml.safe_load((CHECKOUT / "_config.yml").read_text(encoding="utf-8"))
        (root / "_static").mkdir()
        shutil.copy(CHECKOUT / "chapters" / "_static" / "favicon.svg", root / "_static")
        (root / "_config.yml").write_text(yaml.safe_dump(config), encoding="utf-8")

    def page(self, name: str, text: str) -> Path:
        return self._add(name, text)

    def notebook(self, name: str, *cells: tuple[str, str]) -> Path:
        node = new_notebook()
        for kind, source in cells:
            if kind == "text":
                node.cells.append(new_markdown_cell(source))
            else:
                tags = [] if kind == "code" else [kind]
                node.cells.append(new_code_cell(source, metadata={"tags": tags} if tags else {}))
        return self._add(name, nbformat.writes(node))

    def staged(self, name: str) -> nbformat.NotebookNode:
        return nbformat.read(self.stage / name, as_version=4)

    def _add(self, name: str, text: str) -> Path:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        if name not in self.files:
            self.files.append(name)
        toc = {"format": "jb-book", "root": self.files[0]}
        if len(self.files) > 1:
            toc["chapters"] = [{"file": other} for other in self.files[1:]]
        (self.root / "_toc.yml").write_text(yaml.safe_dump(toc), encoding="utf-8")
        return file


@pytest.fixture
def book(tmp_path):
    root = tmp_path / "checkout"
    root.mkdir()
    return Book(root)


@pytest.fixture
def console():
    """A console whose text is `console.file.getvalue()`."""
    return Console(file=io.StringIO(), width=200)
