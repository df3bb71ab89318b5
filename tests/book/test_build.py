"""The site: built offline from what was executed, or not at all."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import version

import pytest

from inferlab.book import bootstrap, build, run, site
from inferlab.book.pages import BookError

OBJECT = (
    "class Thing:\n"
    "    def _repr_mimebundle_(self, include=None, exclude=None):\n"
    "        return {'application/x-unheard-of': 'abc'}\n"
    "Thing()"
)


def git(root, *words):
    subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/some-one/a.book.git", "https://github.com/some-one/a.book"),
        ("https://github.com/some-one/book/", "https://github.com/some-one/book"),
        ("https://name:secret@github.com/o/r.git", "https://github.com/o/r"),
        ("git@github.com:o/r.git", "https://github.com/o/r"),
        ("ssh://git@github.com/o/r", "https://github.com/o/r"),
        ("https://example.org/github.com/o/r", None),
        ("/somewhere/github.com/o/r", None),
        ("https://notgithub.com/o/r", None),
    ],
)
def test_the_address_is_that_of_a_github_remote(tmp_path, remote, address):
    git(tmp_path, "init", "-q")
    git(tmp_path, "remote", "add", "origin", remote)
    assert build.github_address(tmp_path) == address


def test_no_git_no_address(tmp_path):
    assert build.github_address(tmp_path) is None


def test_without_an_address_no_button_is_dead(book):
    book.page("intro.md", "# Intro")
    config = build.settings(book.root, book.stage)
    buttons = [value for name, value in config["html"].items() if name.endswith("_button")]
    assert buttons == [False, False, False]
    assert "launch_buttons" not in config


def test_with_an_address_come_the_buttons_and_colab_where_it_would_work(book, console):
    book.page("intro.md", "# Intro")
    git(book.root, "init", "-q")
    git(book.root, "remote", "add", "origin", "git@github.com:o/r.git")
    book.notebook("a.ipynb", ("bootstrap", "pass"))
    run.run(book.root, book.stage, console=console)
    config = build.settings(book.root, book.stage)
    assert config["repository"]["url"] == "https://github.com/o/r"
    assert config["html"]["use_edit_page_button"]
    assert config["launch_buttons"] == {"colab_url": build.COLAB}
    book.notebook("b.ipynb", ("code", "pass"))
    run.run(book.root, book.stage, console=console)
    assert "launch_buttons" not in build.settings(book.root, book.stage)


def test_a_button_that_leads_to_a_cell_without_an_address_is_noticed(book):
    book.page("intro.md", "# Intro")
    book.notebook("a.ipynb", ("text", "# A"), ("bootstrap", bootstrap.source("", "0.1.0")))
    assert bootstrap.without_address(book.root)
    known = bootstrap.source("https://github.com/o/r", "0.1.0")
    book.notebook("a.ipynb", ("text", "# A"), ("bootstrap", known))
    assert not bootstrap.without_address(book.root)
    with pytest.raises(ValueError, match="no bootstrap cell"):
        bootstrap.address_in("pass")


def test_a_release_leads_to_the_notebooks_of_its_tag(book):
    """Their cell installs the library of that release; those of a branch have moved on."""
    book.page("intro.md", "# Intro")
    git(book.root, "init", "-q")
    git(book.root, "remote", "add", "origin", "git@github.com:o/r.git")
    git(book.root, "add", "intro.md")
    git(book.root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
    assert build.settings(book.root, book.stage)["repository"]["branch"] == "main"
    git(book.root, "tag", "v0.0.0")
    assert build.settings(book.root, book.stage)["repository"]["branch"] == "main"
    git(book.root, "tag", f"v{version('inferlab')}")
    config = build.settings(book.root, book.stage)
    assert config["repository"]["branch"] == f"v{version('inferlab')}"
    assert not config["html"]["use_edit_page_button"]


@pytest.mark.slow
def test_every_notebook_page_has_the_button_and_no_other(book, console):
    book.page("chapters/intro.md", "# Intro")
    text = bootstrap.source("https://github.com/o/r", "0.1.0")
    book.notebook("chapters/one/a.ipynb", ("text", "# A"), ("bootstrap", text))
    book.notebook("chapters/b.ipynb", ("text", "# B"), ("bootstrap", text))
    git(book.root, "init", "-q")
    git(book.root, "remote", "add", "origin", "https://github.com/o/r.git")
    run.run(book.root, book.stage, console=console)
    html, _ = build.build(book.root, book.root / "_build")
    colab = "https://colab.research.google.com/github/o/r/blob/main/"
    for page, links in {
        "chapters/one/a": [f"{colab}chapters/one/a.ipynb"],
        "chapters/b": [f"{colab}chapters/b.ipynb"],
        "chapters/intro": [],
    }.items():
        found = re.findall(r'href="(https://colab[^"]*)"', (html / f"{page}.html").read_text())
        assert sorted(set(found)) == links, page


def test_what_was_not_executed_as_it_stands_is_not_published(book, console):
    book.notebook("a.ipynb", ("code", "print(1)"))
    with pytest.raises(BookError, match=r"inferlab run a\.ipynb"):
        build.build(book.root, book.root / "_build")
    run.run(book.root, book.stage, console=console)
    book.notebook("a.ipynb", ("code", "print(2)"))
    with pytest.raises(BookError, match=r"not executed as it now stands: a\.ipynb"):
        build.build(book.root, book.root / "_build")


@pytest.mark.slow
def test_a_book_is_whole_and_a_broken_one_leaves_it_there(book, console):
    """One real build, a second that has nothing to do, and one that must fail."""
    book.page("chapters/intro.md", "# Intro\n\nSee [the answer](a.ipynb).")
    alt = "print('42')"
    book.notebook("chapters/a.ipynb", ("text", "# Answer\n\n$x = 42$"), ("code", alt))
    run.run(book.root, book.stage, console=console)
    folder = book.root / "_build"
    assert build.build(book.root, folder) == (folder / "html", True)
    assert build.build(book.root, folder) == (folder / "html", False)
    assert site.check(folder / "html", private=(str(book.root),)) == []
    answer = (folder / "html" / "chapters" / "a.html").read_text()
    assert "42" in answer
    assert "tex-svg.js" in answer
    assert "tex-svg.js" not in (folder / "html" / "chapters" / "intro.html").read_text()
    assert 'href="chapters/intro.html"' in (folder / "html" / "index.html").read_text()
    book.page("chapters/intro.md", "# Intro\n\nSee [nothing](missing.md) and {ref}`nowhere`.")
    with pytest.raises(BookError) as caught:
        build.build(book.root, folder)
    said = str(caught.value)
    assert f"{book.root}/chapters/intro.md:3: WARNING" in said
    assert "missing.md" in said
    assert "nowhere" in said
    assert (folder / "html" / "chapters" / "a.html").read_text() == answer
    assert sorted(p.name for p in folder.iterdir()) == ["html", "html.key", "stage"]


@pytest.mark.slow
def test_an_output_of_unknown_type_is_fatal(book, console):
    book.notebook("a.ipynb", ("text", "# A"), ("code", OBJECT))
    (result,) = run.run(book.root, book.stage, console=console)
    assert result.state == "executed", console.file.getvalue()
    with pytest.raises(BookError, match="application/x-unheard-of"):
        build.build(book.root, book.root / "_build")
