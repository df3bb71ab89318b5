"""The checks of a page find every fault that is planted, and nothing on a clean page."""

from __future__ import annotations

import re

import pytest

from inferlab.book import browser, site

CLEAN = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"></head><body><main><h1 id="top">A page</h1>
<p><a href="other.html#there">Another page</a> and <a href="#top">the top of this one</a>.</p>
<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=" alt="Time rises with the prompt">
%s</main></body></html>"""
OTHER = CLEAN.replace('id="top"', 'id="there"').replace("other.html#there", "#there") % ""
OTHER = OTHER.replace('"#top"', '"#there"')


@pytest.fixture
def pages(tmp_path):
    def make(planted=""):
        (tmp_path / "page.html").write_text(CLEAN % planted, encoding="utf-8")
        (tmp_path / "other.html").write_text(OTHER, encoding="utf-8")
        return tmp_path

    return make


def test_a_clean_page_has_no_problem(pages):
    assert site.check(pages()) == []


def test_an_empty_site_is_a_problem(tmp_path):
    assert [p.check for p in site.check(tmp_path)] == ["pages"]


FRAME = {
    "": ("does not say how long it takes to read", "does not lead one deeper", "no og:image"),
    '<ul class="il-badges"><li>soon to read</li></ul>': ("how long it takes to read",),
    '<ul class="il-badges"><li>3 min to read</li></ul><div class="cell"></div>': ("took to run",),
    '<meta property="og:image" content="gone.png">': ("picture that is not there: gone.png",),
}


@pytest.mark.parametrize(("planted", "what"), FRAME.items())
def test_what_a_page_of_the_book_lacks_around_its_text_is_found(pages, planted, what):
    article = f'<article class="bd-article"><section>{planted}</section></article>'
    problems = site.check(pages(article))
    assert {p.check for p in problems} == {"frame"}
    assert not [w for w in what if not any(w in p.what for p in problems)], problems


def test_a_page_of_the_book_that_has_it_all_lacks_nothing(pages):
    tags = "".join(
        f'<meta property="og:{n}" content="x">' for n in ("title", "description", "type")
    )
    article = (
        f'{tags}<meta property="og:image" content="other.html">'
        '<article class="bd-article"><section>'
        '<ul class="il-badges"><li>3 min to read</li><li>4 s to run on it</li></ul>'
        '<div class="cell">x</div></section><nav class="il-deeper"><a href="other.html">x</a></nav>'
        "</article>"
    )
    assert site.check(pages(article)) == []


@pytest.mark.parametrize(
    ("planted", "check", "what"),
    [
        ('<a href="missing.html">x</a>', "links", "missing.html leads to no file"),
        ('<a href="other.html#gone">x</a>', "links", "leads to no such anchor"),
        ('<a href="#gone">x</a>', "links", "leads to no such anchor"),
        ('<a href="">x</a>', "links", "an empty link"),
        ('<a href="https:///issues">x</a>', "links", "names no host"),
        ('<script src="https://example.org/x.js" async></script>', "off-site", "example.org/x.js"),
        ('<script src="//example.org/x.js" defer></script>', "off-site", "example.org/x.js"),
        ('<script src="other.html"></script>', "scripts", "other.html holds up the text"),
        ('<link rel="stylesheet" href="https://example.org/x.css">', "off-site", "x.css"),
        ("<style>@import 'https://example.org/x.css';</style>", "off-site", "x.css"),
        ('<img src="x.png">', "alt text", "no alt text"),
        ('<img src="x.png" alt=" ">', "alt text", "no alt text"),
        ('<img src="x.png" alt="../_images/8f0c1d2e3a4b5c6d.png">', "alt text", "says nothing"),
        ('<img src="x.png" alt="Figure 3">', "alt text", "says nothing"),
        ('<div class="cell_output"><svg></svg></div>', "alt text", "an SVG in an output"),
        ('<span class="math">x</span>', "mathematics", "does not load MathJax"),
        ('<script defer src="other.html?tex-svg.js"></script>', "mathematics", "has no formula"),
        (
            '<div class="cell_output"><div class="output stderr">Warning: slow</div></div>',
            "output",
            "Warning: slow",
        ),
        (
            '<div class="cell_output"><div class="output">&lt;Figure size 640x480&gt;</div></div>',
            "output",
            "shows an object",
        ),
        ('<div class="cell tag_injected-parameters">x = 1</div>', "output", "injected"),
        ("<p>/srv/checkout/of/mine</p>", "private", "/srv/checkout"),
    ],
)
def test_every_planted_fault_is_found(pages, planted, check, what):
    problems = site.check(pages(planted), private=("/srv/checkout",))
    assert [p.check for p in problems] == [check], problems
    assert what in problems[0].what


FAULTS = {
    "fetch": (
        "<script>fetch('http://127.0.0.1:9/x').catch(() => 0)</script>",
        "request off the site: http://127.0.0.1:9/x",
    ),
    "console": ("<script>console.error('lost')</script>", "console: lost"),
    "script": ("<script>undefined.x</script>", "script: Cannot read properties"),
    "missing": ("<script src='gone.js'></script>", "request failed: 404 /gone.js"),
    "wide": (
        "<div style='width: 900px'>wide</div>",
        r"horizontal scroll: \d+ px wider than 800 px \(div\.\)",
    ),
    "pale": (
        "<p style='color: #bbb; background: #fff'>pale</p>",
        "axe, light, 390 px: color-contrast",
    ),
    "dark": (
        "<style>@media (prefers-color-scheme: dark) "
        "{ p { color: #bbb; background: #fff } }</style>",
        "axe, dark, 800 px: color-contrast",
    ),
    "nameless": ("<button></button>", "axe, dark, 800 px: button-name"),
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What a browser says of a clean page and of one page for each fault, all opened at once."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "clean.html").write_text(CLEAN % "", encoding="utf-8")
    for name, (planted, _) in FAULTS.items():
        (folder / f"{name}.html").write_text(CLEAN % planted, encoding="utf-8")
    return [str(problem) for problem in browser.check(folder)]


@pytest.mark.browser
def test_a_browser_finds_no_fault_on_a_clean_page(seen):
    assert [p for p in seen if p.startswith("clean.html")] == []


@pytest.mark.browser
@pytest.mark.parametrize("name", FAULTS)
def test_a_browser_finds_every_planted_fault(seen, name):
    found = [p for p in seen if p.startswith(f"{name}.html")]
    assert [p for p in found if re.match(f"{name}.html: {FAULTS[name][1]}", p)], found
    if name == "dark":
        assert not [p for p in found if "light" in p]


def test_without_a_browser_the_reader_is_told_how_to_get_one(monkeypatch):
    monkeypatch.setattr(browser, "find_browser", lambda: None)
    with pytest.raises(browser.BookError, match="install"), browser.open_browser():
        pass


def test_the_browser_can_be_named(monkeypatch, tmp_path):
    program = tmp_path / "my-chrome"
    monkeypatch.setenv("INFERLAB_BROWSER", str(program))
    assert browser.find_browser() is None
    program.touch()
    assert browser.find_browser() == program


def test_pages_of_one_template_take_turns(tmp_path):
    """Each in one view, all six views seen; any other page in all of them."""
    for name in ("index", *(f"04_math/equations/symbols/s{i}" for i in range(7))):
        file = tmp_path / f"{name}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("<p>words</p>")
    views = dict(browser._views(tmp_path))
    assert views.pop("index.html") == dict.fromkeys(browser.THEMES, browser.WIDTHS)
    seen = [(theme, widths) for view in views.values() for theme, widths in view.items()]
    assert len(seen) == len(views) == 7
    assert {(t, w) for t, ws in seen for w in ws} == {
        (t, w) for t in browser.THEMES for w in browser.WIDTHS
    }
