"""Claims in the book: gathered from executed notebooks, checked, marked in the text, shown."""

import io
import json

import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from inferlab.book.sphinx import landing
from inferlab.book.sphinx.claims_gathered import LEDGER_PAGE, gather
from inferlab.lab import ledger
from inferlab.lab.claims import Case, claim
from inferlab.lab.intervals import Interval

ANSWER = "chapters/01_answer/answer"


def passes(first=1):
    return claim("prefill-is-one-pass", {"this-request": first, "long-prompt": 1}, strict=False)


def tokens(short=39):
    cases = [Case("short-answer", short, 40, 39), Case("long-answer", 199, 200, 199)]
    return claim("one-pass-per-token", cases, strict=False)


def notebook(*results, text="# A page"):
    outputs = [
        {"output_type": "execute_result", "metadata": {}, "execution_count": 1,
         "data": {"text/html": r._repr_html_()}} for r in results
    ]  # fmt: skip
    code = {"cell_type": "code", "id": "b", "metadata": {}, "execution_count": 1, "source": "",
            "outputs": outputs}  # fmt: skip
    words = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": text}
    return {"cells": [words, code], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture
def gathered(tmp_path):
    def make(pages):
        for name, content in pages.items():
            file = tmp_path / f"{name}.ipynb"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content), encoding="utf-8")
        return gather(tmp_path, tuple(pages))

    return make


def test_results_are_found_with_their_page(gathered):
    found = gathered({ANSWER: notebook(passes(), tokens())})
    assert found.faults == ()
    assert {id: hit.page for id, hit in found.found.items()} == {
        "prefill-is-one-pass": ANSWER, "one-pass-per-token": ANSWER
    }  # fmt: skip
    assert found.found["prefill-is-one-pass"].result["verdict"] == "holds"


def test_a_claim_s_own_notebook_comes_before_another(gathered):
    pages = {"chapters/a": notebook(passes(2)), ANSWER: notebook(passes(), tokens()),
             "chapters/z": notebook(passes(2))}  # fmt: skip
    hit = gathered(pages).found["prefill-is-one-pass"]
    assert (hit.page, hit.result["verdict"]) == (ANSWER, "holds")


def test_a_claim_tested_by_two_pages_counts_once(gathered):
    once = gathered({ANSWER: notebook(passes(), tokens()), LEDGER_PAGE: notebook(passes())})
    assert landing.counted(once) == {"holds": 1, "refined": 1}


def test_another_page_stands_in_while_the_own_one_is_not_in_the_book(gathered):
    hit = gathered({LEDGER_PAGE: notebook(passes())})
    assert hit.faults == ()
    assert hit.found["prefill-is-one-pass"].page == LEDGER_PAGE


def test_a_notebook_that_does_not_assert_its_claim_is_a_fault(gathered):
    found = gathered({ANSWER: notebook(passes()), LEDGER_PAGE: notebook(tokens())})
    assert found.faults == (
        f"{ANSWER}: this notebook is to assert claim 'one-pass-per-token', and does not",
    )


def test_a_result_of_an_unknown_claim_is_a_fault(gathered):
    false = json.loads(json.dumps(notebook(passes())).replace("prefill-is-one-pass", "no-such"))
    found = gathered({"chapters/a": false})
    assert found.faults == ("chapters/a: claim 'no-such' is not in data/claims.yml",)
    assert not found.found


@pytest.fixture
def site(tmp_path):
    """site(text, {page: notebook}) builds pages of reST; returns (index, ledger page, warnings)."""

    def build(text, notebooks):
        source = tmp_path / "source"
        for name in ("index", LEDGER_PAGE, *notebooks):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / f"{name}.rst").write_text(":orphan:\n\nPage\n====\n")
        (source / "index.rst").write_text(":orphan:\n\nPage\n====\n\n" + text)
        (source / f"{LEDGER_PAGE}.rst").write_text(":orphan:\n\nPage\n====\n\n.. ledger::\n")
        for name, content in notebooks.items():
            (source / f"{name}.ipynb").write_text(json.dumps(content), encoding="utf-8")
        said = io.StringIO()
        settings = {"extensions": ["inferlab.book.sphinx.claim_ledger",
                                   "inferlab.book.sphinx.claim_mark"],
                    "html_theme": "basic"}  # fmt: skip
        folders = [str(tmp_path / name) for name in ("out", "doctrees")]
        with docutils_namespace():
            app = Sphinx(str(source), None, *folders, "html", settings, status=None, warning=said)
            app.build()
        pages = (tmp_path / "out" / f"{n}.html" for n in ("index", LEDGER_PAGE))
        return *(BeautifulSoup(p.read_text("utf-8"), "html.parser") for p in pages), said.getvalue()

    return build


def test_a_mark_names_the_verdict_holds_the_numbers_and_leads_to_the_ledger(site):
    text = "Said here. :claim:`one-pass-per-token` And :claim:`reading-cheap-writing-slow`."
    page, whole, said = site(text, {ANSWER: notebook(passes(), tokens())})
    assert said == ""
    first, second = page.find_all("a", class_="il-mark")
    assert first["aria-label"] == "Claim 4: refined"
    assert first["href"] == f"{LEDGER_PAGE}.html#ledger-one-pass-per-token"
    assert whole.find(id="ledger-one-pass-per-token")
    note = page.find(id=first["aria-describedby"])
    assert note["role"] == "tooltip"
    text = note.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "short-answer: 39; the source says about 40 (± 1 %) (0.975 times that)" in text
    assert "we say exactly 39 (1 times that)" in note.text
    assert second["aria-label"] == "Claim 6: not yet tested"
    assert page.find("link", href=lambda h: h and "claims.css" in h)


def test_the_same_mark_twice_has_two_notes(site):
    text = ":claim:`one-pass-per-token` and :claim:`one-pass-per-token`"
    page, _, _ = site(text, {ANSWER: notebook(passes(), tokens())})
    ids = [mark["aria-describedby"] for mark in page.find_all("a", class_="il-mark")]
    assert len(set(ids)) == 2
    assert all(page.find(id=id) for id in ids)


def test_an_unknown_claim_in_the_text_is_a_warning(site):
    page, _, said = site("Said. :claim:`one-pass`", {})
    assert "no claim 'one-pass' in data/claims.yml; near are one-pass-per-token" in said
    assert not page.find(class_="il-mark")


def test_the_ledger_has_every_claim_and_what_was_measured(site):
    _, whole, said = site("", {ANSWER: notebook(passes(), tokens())})
    assert said == ""
    book = ledger.read()
    entries = {entry["id"]: entry for entry in whole.find_all(class_="il-entry")}
    assert list(entries) == [f"ledger-{id}" for id in book]
    tested = entries["ledger-one-pass-per-token"]
    assert tested.find(class_="il-verdict")["data-verdict"] == "refined"
    assert "about 40 (±\N{NO-BREAK SPACE}1\N{NO-BREAK SPACE}%): excluded" in tested.text
    assert "As recorded." in tested.text
    assert tested.find("a", href=f"../../{ANSWER}.html") or tested.find("a", href=True)
    assert "Not yet tested" in entries["ledger-steady-pace"].text
    assert "Why it cannot be tested" in entries["ledger-training-is-paid-once"].text


def test_what_the_ledger_page_made_itself_has_no_link_to_itself(site):
    _, whole, _ = site("", {LEDGER_PAGE: notebook(tokens())})
    tested = whole.find(id="ledger-one-pass-per-token")
    assert "On this page" in tested.text
    assert not tested.find_all("a", href="")


def test_a_fault_of_the_ledger_is_a_warning_of_the_build(site):
    _, _, said = site("", {ANSWER: notebook(passes())})
    assert "this notebook is to assert claim 'one-pass-per-token', and does not" in said


def test_an_interval_and_a_difference_from_zero_are_shown():
    from inferlab.lab.claim_view import residual

    slow = claim("reading-cheap-writing-slow", measured=Interval(12, 11, 13, n=9), strict=False)
    (case,) = slow.to_dict()["cases"]
    assert residual(case) == (
        "batch-1: 12 (95 % interval 11 to 13, n = 9); the source says at least 5 (2.4 times that)"
    )
    still = claim("forward-passes-only", {"greedy": 2, "sampled": 0}, strict=False)
    assert residual(still.to_dict()["cases"][0]).endswith("the source says exactly 0 (+2)")
