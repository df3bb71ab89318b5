"""A lighter site: what is used stays, what is not goes, no script holds up the text."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from fontTools.ttLib import TTFont

from inferlab.book import slim

PAGE = """<html class="seen"><head><link href="_static/a.css?v=old" rel="stylesheet" />
<script src="_static/doctools.js?v=1"></script>
<script>DOCUMENTATION_OPTIONS.pagename = 'x';</script>
<script>let hint = 'Show';</script>
<script defer src="_static/fontawesome.js?digest=1"></script>
<script type="module" src="_static/m.js"></script>
<script src="searchindex.js"></script>
<script type="application/json">{"a": 1}</script>
</head><body id="top"></body></html>"""


@pytest.mark.parametrize(
    ("sheet", "kept"),
    [
        (".seen{a:b}", ".seen{a:b}"),
        (".gone{a:b}", ""),
        (".seen .gone{a:b}", ""),
        (".gone,.seen{a:b}", ".seen{a:b}"),
        ("#top{a:b}#gone{a:b}", "#top{a:b}"),
        ("p:not(.gone){a:b}", "p:not(.gone){a:b}"),
        (":is(.gone,.seen) p{a:b}", ":is(.gone,.seen) p{a:b}"),
        ("[data-x=gone]{a:b}", "[data-x=gone]{a:b}"),
        ('html::before{content:".gone"}', 'html::before{content:".gone"}'),
        (".part-two{a:b}", ".part-two{a:b}"),
        ("@media print{.gone{a:b}}", ""),
        ("@media print{.seen{a:b}.gone{a:b}}", "@media print{.seen{a:b}}"),
        ("@keyframes gone{to{a:b}}", "@keyframes gone{to{a:b}}"),
        ('@import "../b.css";', '@import "../b.css";'),
        ("/* said */.seen{a:b}", ".seen{a:b}"),
    ],
)
def test_a_rule_stays_where_its_names_are_used(sheet, kept):
    used = frozenset({"seen", "top", "part-", "html"})
    assert slim.purge(sheet, used) == kept


def test_a_sheet_that_cannot_be_read_is_told():
    with pytest.raises(ValueError, match="style sheet, line 1"):
        slim.purge(".a{b:c} .d", frozenset({"a"}))


def test_scripts_wait_and_those_of_the_search_are_in_the_search():
    page, search = slim.scripts(PAGE, search=False), slim.scripts(PAGE, search=True)
    assert '<script defer src="_static/doctools.js?v=1">' in page
    assert """<script type="module">DOCUMENTATION_OPTIONS.pagename = 'x';</script>""" in page
    assert "<script>let hint = 'Show';</script>" in page
    assert '<script type="module" src="_static/m.js">' in page
    assert '<script type="application/json">{"a": 1}</script>' in page
    assert "fontawesome" not in page + search
    assert "searchindex" not in page
    assert '<script defer src="searchindex.js">' in search


def test_a_page_has_its_colours_before_any_script_comes():
    line, _ = slim.EARLY
    page = slim.coloured(f'<html data-theme="auto"><script>{line}</script>')
    assert 'data-theme="light"' in page
    assert "prefers-color-scheme: dark" in page
    layout = Path(find_spec("pydata_sphinx_theme").origin).parent / "theme" / "pydata_sphinx_theme"
    assert line in (layout / "layout.html").read_text(encoding="utf-8").replace(
        "{{ default_mode }}", "auto"
    )


def test_a_site_keeps_the_glyphs_it_shows_and_says_when_a_sheet_is_another(tmp_path):
    theme = Path(find_spec("pydata_sphinx_theme").origin).parent
    fonts = theme / "theme" / "pydata_sphinx_theme" / "static" / "vendor" / "fontawesome"
    shutil.copytree(fonts, tmp_path / "_static" / "fontawesome")
    (tmp_path / "_static" / "scripts").mkdir()
    (tmp_path / "_static" / "scripts" / "fontawesome.js").write_text("fa-gone")
    (tmp_path / "_static" / "a.css").write_text(
        '@font-face{src:url(fontawesome/webfonts/fa-solid-900.woff2) format("woff2"),'
        'url(fontawesome/webfonts/fa-solid-900.ttf) format("truetype")}'
        '.seen:before{content:"\\f0c9"}.gone:before{content:"\\f002"}'
    )
    (tmp_path / "index.html").write_text(PAGE)
    before = (tmp_path / "_static" / "fontawesome" / "webfonts" / "fa-solid-900.ttf").stat().st_size
    slim.slim(tmp_path)
    sheet = (tmp_path / "_static" / "a.css").read_text()
    assert "woff2" not in sheet
    assert ".gone" not in sheet
    (font,) = tmp_path.rglob("fa-solid-900.*")
    assert set(TTFont(font).getBestCmap()) == {0xF0C9}
    assert font.stat().st_size < before / 50
    assert not list(tmp_path.rglob("fontawesome.js"))
    address = (tmp_path / "index.html").read_text().split('href="')[1].split('"')[0]
    assert address.startswith("_static/a.css?v=")
    assert "old" not in address
