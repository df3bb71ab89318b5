"""The pages of equations and symbols are made from what stands on the functions."""

from __future__ import annotations

import shutil

import pytest
import yaml

from inferlab.book import browser, build, site
from inferlab.book.sphinx import equation, equation_html, equation_pages
from inferlab.theory import formulas
from inferlab.theory.equations import collect, of
from inferlab.theory.notation import OPERATIONS, SYMBOLS

EQUATIONS = collect(formulas.MODULES)
FOLDER = equation_pages.FOLDER


@pytest.fixture
def source(tmp_path):
    toc = {"format": "jb-book", "root": "first", "chapters": [{"file": equation_pages.INDEX}]}
    (tmp_path / "_toc.yml").write_text(yaml.safe_dump(toc), encoding="utf-8")
    return tmp_path


def test_a_page_for_each_equation_symbol_and_operation(source):
    assert equation_pages.generate(source)
    for kind, names in (
        ("equation", [e.id for e in EQUATIONS]),
        ("symbol", SYMBOLS),
        ("operation", OPERATIONS),
    ):
        for name in names:
            assert (source / f"{equation_pages.page_of(kind, name)}.md").is_file()
    toc = yaml.safe_load((source / "_toc.yml").read_text(encoding="utf-8"))
    listed = [entry["file"] for entry in toc["chapters"][0]["sections"]]
    assert listed == [f"{FOLDER}/{e.id}" for e in EQUATIONS]


def test_a_book_without_the_index_gets_no_page(tmp_path):
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: first\n", encoding="utf-8")
    assert not equation_pages.generate(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["_toc.yml"]


def test_an_equation_page_says_all_that_is_known(source):
    equation_pages.generate(source)
    for e in EQUATIONS:
        text = (source / f"{FOLDER}/{e.id}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {e.title}\n")
        for part in (e.reading, *e.assumptions, *(p.says for p in e.passages)):
            assert part in text
        assert (f"{{claim}}`{e.claim}`" in text) == bool(e.claim)
        assert e.function.__name__ in text


def test_a_symbol_page_leads_to_every_formula_it_stands_in(source):
    equation_pages.generate(source)
    text = (source / f"{FOLDER}/symbols/bandwidth.md").read_text(encoding="utf-8")
    for name in ("ridge-point", "roofline-time", "additive-time", "critical-batch", "mbu"):
        assert f"```{{equation-reader}} {name}\n:mark: bandwidth" in text
    assert "byte/s" in text
    assert "(../index.md)" in text


def test_every_operation_occurs_somewhere(source):
    equation_pages.generate(source)
    for name in OPERATIONS:
        text = (source / f"{FOLDER}/operations/{name}.md").read_text(encoding="utf-8")
        assert text.split("## Where it occurs")[1].count("](../") > 1, name


def test_what_the_directives_print_is_part_of_the_key_of_the_book(source):
    equation_pages.generate(source)
    before = (source / "_equations.json").read_text(encoding="utf-8")
    assert of(formulas.mbu).reading in before
    assert all(s.meaning in before for s in SYMBOLS.values())


def test_the_table_shows_the_computed_value():
    e = of(formulas.prefill_flops)
    table = equation_html.parts_table(e, lambda kind, name: "")
    assert '<span class="eq-value">70.00 T</span>' in table
    assert table.count("<tr data-part") == len(e.symbols)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (7.0e13, "FLOP", "70.00 T"),
        (500, "token", "500"),
        (131072, "byte/token", "131,072"),
        (0.0045207, "second/step", "0.004521"),
        (4.4e-7, "dollar/token", "4.4e-7"),
        (4.0e-4, "second/token", "4e-4"),
        (0.0, "second", "0"),
        (1.2345e9, "1", "1.234e9"),
        ((1.0, 0.25), "1", "(1, 0.25)"),
    ],
)
def test_values_are_written_as_one_reads_them(value, unit, text):
    assert equation_html.value_text(value, unit) == text


def test_a_symbol_is_found_by_name_or_by_a_letter_of_its_own():
    assert equation.find_symbol("P").name == "prompt_tokens"
    assert equation.find_symbol("kv_per_token").letter == "κ"
    assert equation.find_symbol("C_prefill").name == "prefill_flops"
    with pytest.raises(ValueError, match="several symbols: write one of"):
        equation.find_symbol("k")
    with pytest.raises(ValueError, match="no symbol is called"):
        equation.find_symbol("nothing")


def test_every_symbol_can_be_named_in_a_sentence():
    for name, symbol in SYMBOLS.items():
        assert equation.find_symbol(name) is symbol


PAGE = """# A page

A sentence with {sym}`P`, {term}`time to first token` and {term}`KV cache`.

```{equation-reader} total-flops
```
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A book of one page and the equations, built with warnings as errors."""
    root = tmp_path_factory.mktemp("equations")
    checkout = build.Path(__file__).resolve().parents[2]
    config = yaml.safe_load((checkout / "_config.yml").read_text(encoding="utf-8"))
    (root / "_config.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    for name in (f"{FOLDER}/index.md", "chapters/notation.md", "chapters/glossary.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkout / name, root / name)
    shutil.copytree(checkout / "chapters/_static", root / "chapters/_static")
    (root / "chapters/page.md").write_text(PAGE, encoding="utf-8")
    toc = {
        "format": "jb-book",
        "root": "chapters/page",
        "chapters": [
            {"file": equation_pages.INDEX},
            {"file": "chapters/notation"},
            {"file": "chapters/glossary"},
        ],
    }
    (root / "_toc.yml").write_text(yaml.safe_dump(toc), encoding="utf-8")
    return build.build(root, root / "_build")[0]


@pytest.mark.slow
def test_the_pages_are_whole_and_load_no_mathjax(built):
    assert site.check(built) == []
    page = site.Page(built, built / "chapters/page.html")
    assert page.soup.find("a", class_="eq-sym")["href"].endswith("symbols/prompt-tokens.html")
    for file in site.html_pages(built):
        assert "tex-svg" not in file.read_text(encoding="utf-8")
    index = site.Page(built, built / f"{equation_pages.INDEX}.html").soup
    assert index.find("a", class_="right-next")["href"].endswith("notation.html")
    symbols = list((built / FOLDER / "symbols").glob("*.html"))
    assert len(symbols) == len(SYMBOLS)


@pytest.mark.slow
@pytest.mark.browser
def test_a_formula_is_read_by_keyboard_and_by_touch(built):
    def look():
        with browser.serve(built) as origin, browser.open_browser() as chrome:
            page = chrome.new_page(viewport={"width": 390, "height": 800}, has_touch=True)
            page.goto(f"{origin}/{FOLDER}/prefill-flops.html")
            said = []
            for link in page.query_selector_all(".eq-formula a"):
                link.focus()
                said.append(page.text_content(".eq-say"))
            lit = page.eval_on_selector_all("tr.eq-on", "rows => rows.map(r => r.dataset.part)")
            page.keyboard.press("Enter")
            page.wait_for_url("**/symbols/prompt-tokens.html")
            page.go_back()
            page.tap(".eq-formula a[data-part=n_params]")
            tapped = page.text_content(".eq-say"), page.url
            page.tap(".eq-formula a[data-part=n_params]")
            page.wait_for_url("**/symbols/n-params.html")
            return said, lit, tapped

    said, lit, (tapped, url) = browser.apart(look)
    titles = [SYMBOLS[n].title for n in ("prefill_flops", "two_flop", "n_params", "prompt_tokens")]
    assert len(said) == 4
    assert all(title in line for title, line in zip(titles, said, strict=True))
    assert lit == ["prompt_tokens"]
    assert "number of parameters" in tapped
    assert "Tap again" in tapped
    assert url.endswith("prefill-flops.html")


@pytest.mark.slow
@pytest.mark.browser
def test_every_formula_is_seen_whole_on_a_phone(built):
    def look():
        with browser.serve(built) as origin, browser.open_browser() as chrome:
            page = chrome.new_page(viewport={"width": 390, "height": 800})
            page.goto(f"{origin}/{equation_pages.INDEX}.html")
            return page.eval_on_selector_all(
                ".eq-formula",
                "all => all.map(f => [f.textContent.trim(), f.scrollWidth, f.clientWidth])",
            )

    seen = browser.apart(look)
    assert len(seen) == len(EQUATIONS)
    assert [text for text, needed, room in seen if needed > room] == []
