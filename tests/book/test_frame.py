"""What stands around the text: depths, times, the way deeper, the doors, the card."""

from __future__ import annotations

import re
import struct

import pytest
import yaml
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.core import publish_doctree

from inferlab.book import build, card, depths, doors, run, site
from inferlab.book.sphinx import frame, landing
from inferlab.lab.recordings import Recording

BOOK = [
    "chapters/intro",
    "chapters/01_answer/answer",
    "chapters/02_intuition/a",
    "chapters/02_intuition/b",
    "chapters/04_math/flops",
    "chapters/04_math/equations/mfu",
    "chapters/glossary",
]


@pytest.fixture
def recorded():
    settings = {"model": "tiny", "dtype": "fp32", "device": "cpu", "cache": True, "batch": 1,
                "max_tokens": 4}  # fmt: skip
    place = {"cpu": "Test <processor>", "threads": 2, "torch": "2.13.0",
             "date": "2026-01-02T03:04:05+00:00", "commit": "abc1234"}  # fmt: skip

    def make(times=(0.2, 0.3, 0.4, 0.5), **how):
        words = tuple("abcdef"[: len(times)])
        return Recording("a", "Hi", "Hi", ("Hi", " you"), words, tuple(times),
                         tuple(range(1, len(times) + 1)), {**settings, **how}, place)  # fmt: skip

    return make


def test_the_depth_of_a_page_is_that_of_its_folder():
    assert [d.number for d in depths.DEPTHS] == [1, 2, 3, 4, 5, 6, 7]
    assert depths.depth_of("chapters/04_math/equations/mfu").title == "4 · The math"
    assert depths.depth_of("chapters/glossary") is None
    assert depths.depth_of("chapters/08_more/x") is None
    assert depths.depth_of("chapters/04_math") is None


@pytest.mark.parametrize(
    ("page", "below"),
    [
        ("chapters/intro", "chapters/01_answer/answer"),
        ("chapters/01_answer/answer", "chapters/02_intuition/a"),
        ("chapters/02_intuition/b", "chapters/04_math/flops"),
        ("chapters/04_math/equations/mfu", None),
        ("chapters/glossary", "chapters/01_answer/answer"),
    ],
)
def test_one_deeper_is_the_next_depth_that_is_written(page, below):
    assert depths.deeper(page, BOOK) == below


def test_the_first_page_leads_to_an_index_and_not_to_all_behind_it():
    math = "chapters/04_math"
    assert landing._opens(f"{math}/flops")
    assert landing._opens(f"{math}/equations/index")
    assert not landing._opens(f"{math}/equations/mfu")
    assert not landing._opens(f"{math}/equations/symbols/n")


def test_reading_time_counts_what_is_read():
    page = publish_doctree("word " * (2 * frame.WORDS_PER_MINUTE + 1))
    assert frame.minutes(page) == 3
    assert frame.minutes(publish_doctree("word " * 2 * frame.WORDS_PER_MINUTE)) == 2
    assert frame.minutes(publish_doctree("")) == 1
    page += nodes.raw("", "word " * 1000, format="html")
    page += nodes.container("", nodes.paragraph("", "word " * 1000), classes=["tag_hide-input"])
    assert frame.minutes(page) == 3


def test_a_description_is_the_first_paragraph_cut_at_a_word():
    page = publish_doctree("Title\n=====\n\nOne *two*\nthree.\n\nFour.")
    assert frame.description(page) == "One two three."
    assert frame.description(page, 9) == "One two …"


@pytest.mark.parametrize(
    ("repository", "address"),
    [
        ("https://github.com/Some-One/a.book", "https://some-one.github.io/a.book/"),
        ("https://github.com/me/me.github.io", "https://me.github.io/"),
        ("https://example.org/me/book", ""),
        ("", ""),
    ],
)
def test_the_site_of_a_repository_is_on_github_pages(repository, address):
    assert build.site_address(repository) == address


def test_the_page_of_a_wrong_address_starts_at_the_path_of_the_site():
    for base, path in (("", "/"), ("https://me.github.io/", "/"), ("https://a.b/c/", "/c/")):
        page = BeautifulSoup(
            doors.lost("A <title>", "x.html", [("y.html", "Y")], base), "html.parser"
        )
        assert page.find("base")["href"] == path
        assert [a["href"] for a in page.find_all("a")] == ["x.html", "search.html", "y.html"]
        assert "A <title>" in page.get_text()


def test_a_book_that_begins_at_index_keeps_its_first_page(tmp_path):
    doors.write(tmp_path, "T", "index.html", [], "")
    assert [p.name for p in tmp_path.iterdir()] == ["404.html"]


def test_the_machine_is_told_by_its_longest_answer_to_one_user(recorded):
    runs = [
        recorded((0.1, 0.2)), recorded(cache=False), recorded(batch=8), recorded((1.0,)),
        recorded((0.2, 0.3, 0.5)),
    ]  # fmt: skip
    assert landing.chosen(runs) == runs[-1]
    assert landing.chosen(runs[1:4]) is None
    assert landing.chosen([]) is None


def test_its_figures_are_computed(recorded):
    html = landing.tiles(recorded(), {})
    page = BeautifulSoup(html, "html.parser")
    told = {dt.get_text(): dt.find_next_sibling("dd").get_text() for dt in page.find_all("dt")}
    assert told == {
        "to read 2 tokens and write the first of the answer": "200 ms",
        "for each of the 3 tokens after it": "100 ms",
        "tokens written in a second": "10",
        "as long to write a token as to read one": "1 ×",
    }
    assert "Test <processor>, 2 threads" in page.get_text()
    assert "Claims" not in html
    page = landing.tiles(recorded(), landing.Counter(["holds", "wrong", "holds"]))
    assert "tested 3 claims, by verdict: 2 holds, 1 wrong." in page


def test_a_card_has_the_size_that_link_previews_ask_for(tmp_path, recorded):
    for run_ in (None, recorded()):
        card.draw(tmp_path / "x" / "card.png", "Title", "More", run_)
        head = (tmp_path / "x" / "card.png").read_bytes()[:24]
        assert head[1:4] == b"PNG"
        assert struct.unpack(">II", head[16:]) == (1200, 630)


@pytest.mark.slow
def test_a_built_book_has_it_all(book, console):
    """Cards, badges with a measured time, the way down, tags of whole addresses, both doors."""
    book.page("chapters/intro.md", "# Intro\n\nFirst & *foremost*.\n\n```{depths}\n```\n")
    book.notebook("chapters/01_answer/a.ipynb", ("text", "# One"), ("code", "print('x')"))
    book.notebook("chapters/04_math/b.ipynb", ("text", "# Four"), ("code", "print('y')"))
    config = yaml.safe_load((book.root / "_config.yml").read_text(encoding="utf-8"))
    config["repository"]["url"] = "https://github.com/me/book"
    (book.root / "_config.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    run.run(book.root, book.stage, console=console)
    html, _ = build.build(book.root, book.root / "_build")
    assert site.check(html, private=(str(book.root),)) == []
    intro, one, four = (
        BeautifulSoup((html / "chapters" / f"{n}.html").read_text(), "html.parser")
        for n in ("intro", "01_answer/a", "04_math/b")
    )
    links = [a["href"] for a in intro.select(".il-depth a")]
    assert links == ["01_answer/a.html", "04_math/b.html"]
    assert [a.get_text() for a in intro.select(".il-depth a")] == ["One", "Four"]
    assert len(intro.select(".il-unwritten")) == 5
    told = [item.get_text() for item in one.select(".il-badges li")]
    assert told[:2] == ["Depth 1 · The answer", "1 min to read"]
    assert re.fullmatch(r"\d+ s to run on .+", told[2])
    down = [page.select_one("nav.il-deeper a") for page in (intro, one, four)]
    assert [a["href"] for a in down] == ["01_answer/a.html", "../04_math/b.html", "../intro.html"]
    assert "Go deeper" in down[1].get_text()
    tags = {m["property"]: m["content"] for m in intro.select("meta[property]")}
    assert tags["og:image"] == "https://me.github.io/book/_static/card.png"
    assert tags["og:url"] == "https://me.github.io/book/chapters/intro.html"
    assert tags["og:description"] == "First & foremost."
    assert (html / "_static" / "card.png").is_file()
    assert '<base href="/book/">' in (html / "404.html").read_text()
