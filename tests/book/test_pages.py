"""The table of contents, names on the command line, writing without halves."""

from __future__ import annotations

import os

import pytest
import yaml

from inferlab.book import pages
from inferlab.data import write_atomically


def test_pages_in_reading_order(book):
    book.page("chapters/intro.md", "# Intro")
    book.notebook("chapters/a.ipynb", ("text", "# A"))
    assert [str(p) for p in pages.pages(book.root)] == ["chapters/intro.md", "chapters/a.ipynb"]
    assert [str(p) for p in pages.notebooks(book.root)] == ["chapters/a.ipynb"]


def test_names_without_suffix_and_nested_sections(book):
    book.page("intro.md", "# Intro")
    book.page("b.md", "# B")
    book.page("c.md", "# C")
    nested = {"file": "b", "sections": [{"file": "c"}]}
    toc = {"format": "jb-book", "root": "intro", "parts": [{"chapters": [nested]}]}
    (book.root / "_toc.yml").write_text(yaml.safe_dump(toc))
    assert [str(p) for p in pages.pages(book.root)] == ["intro.md", "b.md", "c.md"]


def test_a_listed_page_must_be_there_and_once(book):
    book.page("intro.md", "# Intro")
    toc = book.root / "_toc.yml"
    toc.write_text("format: jb-book\nroot: intro\nchapters:\n- file: later\n")
    with pytest.raises(pages.BookError, match="lists later, but there is no"):
        pages.pages(book.root)
    toc.write_text("format: jb-book\nroot: intro\nchapters:\n- file: intro\n")
    with pytest.raises(pages.BookError, match="twice"):
        pages.pages(book.root)


def test_root_is_found_from_below(book):
    below = book.page("chapters/x/intro.md", "# Intro").parent
    assert pages.find_root(below) == book.root


def test_no_root_says_what_to_do(tmp_path):
    with pytest.raises(pages.WrongUse, match="--root"):
        pages.find_root(tmp_path)


def test_a_notebook_is_named_from_here_or_from_the_root(book, monkeypatch):
    book.notebook("chapters/a.ipynb", ("text", "# A"))
    monkeypatch.chdir(book.root / "chapters")
    assert str(pages.notebook_path(book.root, "a.ipynb")) == "chapters/a.ipynb"
    assert str(pages.notebook_path(book.root, "chapters/a.ipynb")) == "chapters/a.ipynb"
    with pytest.raises(pages.WrongUse, match=r"b\.ipynb is not a notebook.*chapters/a\.ipynb"):
        pages.notebook_path(book.root, "b.ipynb")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "x.txt"
    write_atomically(file, "old")

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(file, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["x.txt"]
    assert file.read_text() == "old"


def test_a_digest_keeps_its_parts_apart(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(b"bc")
    assert pages.digest(["a", file]) == pages.digest(["a", b"bc"])
    assert pages.digest(["a", "bc"]) != pages.digest(["ab", "c"])
