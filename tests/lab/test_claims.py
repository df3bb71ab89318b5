"""claim(): right verdicts, planted falsehoods caught, and a result that survives the notebook."""

import json
import os
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import yaml

from inferlab import data
from inferlab.lab import ledger
from inferlab.lab.claims import Case, ClaimFailed, claim, collect, strict_by_default
from inferlab.lab.intervals import Interval
from inferlab.lab.records import Measurement


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The ledger as it would be with every foreseen verdict recorded."""
    content = yaml.safe_load(data.path("claims.yml").read_text(encoding="utf-8"))
    for entry in content["claims"]:
        entry["recorded"] = entry["recorded"] or entry["foreseen"]
    file = tmp_path_factory.mktemp("ledger") / "claims.yml"
    file.write_text(yaml.safe_dump(content))
    return ledger.read(file)


def _timed(value):
    return Interval(value, value * 0.99, value * 1.01, n=15)


def _inside(statement):
    """A number for which a statement is true, away from its bound."""
    step = {">=": 1.2, ">": 1.2, "<": 0.8, "<=": 0.8}.get(statement.relation, 1.0)
    if statement.value == 0:
        return 1.0 if statement.relation == ">" else 0.0
    return statement.value * step


def _outside(statement):
    """A number that a statement excludes, by the factor of 2 that a planted fault would make."""
    if statement.value == 0:
        return 0.0 if statement.relation == ">" else 3.0
    return statement.value * {">=": 0.5, ">": 0.5}.get(statement.relation, 2.0)


def _case(entry, regime, flip=False):
    """A case in which everything comes out as the ledger expects, or (flip) the opposite."""
    source, ours = (entry.claimed(party, regime) for party in ledger.PARTIES)
    given = {}
    if source is not None and source.value is None:
        given["source"] = 200.0
    if ours is not None and ours.value is None:  # where both agree ours is the source's number
        number = given.get("source") or (source.value if source else None) or 200.0
        given["ours"] = number * (1 if len(set(regime.expect.values())) == 1 else 2)
    judged = "ours" if "ours" in regime.expect else "source"
    statement = entry.claimed(judged, regime).at(given.get(judged))
    agrees = (regime.expect[judged] == "agrees") != flip
    value = _inside(statement) if agrees else _outside(statement)
    clock = (regime.by or entry.by) == "clock"
    return Case(regime.id, _timed(value) if clock and value else value, **given)


def _testable(book):
    return [entry for entry in book.values() if entry.regimes]


IDS = [entry.id for entry in ledger.read().values() if entry.regimes]


@pytest.mark.parametrize("id", IDS)
def test_every_claim_comes_out_as_foreseen_where_its_regimes_do(book, id):
    entry = book[id]
    result = claim(id, [_case(entry, r) for r in entry.regimes], strict=True, book=book)
    assert result.verdict == entry.foreseen
    assert result.as_recorded
    assert not result.missing


@pytest.mark.parametrize("id", IDS)
def test_planted_falsehood_one_regime_off_by_a_factor_of_2_fails(book, id):
    entry = book[id]
    for false in entry.regimes:
        cases = [_case(entry, r, flip=r is false) for r in entry.regimes]
        result = claim(id, cases, strict=False, book=book)
        assert result.as_recorded is False, false.id
        assert "Not here" in repr(result)
        with pytest.raises(ClaimFailed, match="came out otherwise"):
            claim(id, cases, strict=True, book=book)


def test_planted_falsehood_twice_the_bytes_is_the_source_s_claim_and_half_is_nobody_s(book):
    right = {"fp32": 1.0, "bf16": 0.935, "clock": _timed(1.3)}
    assert claim("bytes-per-step", right, strict=True, book=book).verdict == "wrong"
    twice = {"fp32": 2.0, "bf16": 2.0, "clock": _timed(2.6)}
    assert claim("bytes-per-step", twice, strict=False, book=book).verdict == "holds"
    half = {"fp32": 0.5, "bf16": 0.5, "clock": _timed(0.65)}
    assert claim("bytes-per-step", half, strict=False, book=book).verdict == "undecided"
    for false in (twice, half):
        with pytest.raises(ClaimFailed):
            claim("bytes-per-step", false, strict=True, book=book)


def test_planted_falsehood_swapped_phases_fail(book):
    ratio = Interval(12.0, 11.0, 13.0, n=15)
    swapped = Interval(1 / 12, 1 / 13, 1 / 11, n=15)
    id = "reading-cheap-writing-slow"
    assert claim(id, measured=ratio, strict=True, book=book).verdict == "holds"
    with pytest.raises(ClaimFailed, match="wrong"):
        claim(id, measured=swapped, strict=True, book=book)
    decode_share = {"even": _timed(0.9), "long-prompt": _timed(0.1)}
    assert claim("decode-is-the-dearer-half", decode_share, book=book).as_recorded
    swapped = {"even": _timed(0.1), "long-prompt": _timed(0.9)}
    result = claim("decode-is-the-dearer-half", swapped, strict=False, book=book)
    assert result.verdict == "depends"  # the same word, in the wrong regimes
    assert result.as_recorded is False
    with pytest.raises(ClaimFailed):
        claim("decode-is-the-dearer-half", swapped, strict=True, book=book)


def test_planted_falsehood_one_pass_too_many_fails(book):
    def passes(short, long):
        cases = [Case("short-answer", short, 40, 39), Case("long-answer", long, 200, 199)]
        return claim("one-pass-per-token", cases, strict=False, book=book)

    assert passes(39, 199).verdict == "refined"
    assert passes(40, 200).as_recorded is False
    assert passes(40, 200).verdict == "holds"
    assert passes(38, 198).verdict == "undecided"


def test_a_measurement_too_wide_to_tell_is_undecided_and_fails(book):
    wide = Interval(6.0, 3.0, 9.0, n=9)
    result = claim("reading-cheap-writing-slow", measured=wide, strict=False, book=book)
    assert result.verdict == "undecided"
    with pytest.raises(ClaimFailed, match="undecided"):
        claim("reading-cheap-writing-slow", measured=wide, strict=True, book=book)


def test_what_the_clock_took_needs_an_interval(book):
    with pytest.raises(ValueError, match="taken by the clock"):
        claim("reading-cheap-writing-slow", measured=12.0, book=book)
    narrow = Interval(12.0, 11.9, 12.1, level=0.5, n=15)
    with pytest.raises(ValueError, match="95 % or more"):
        claim("reading-cheap-writing-slow", measured=narrow, book=book)
    record = Measurement.from_samples("x", [12.0, 12.5, 13.0] * 5, "1", {}, {})
    assert claim("reading-cheap-writing-slow", measured=record, book=book).verdict == "holds"


def test_a_regime_that_was_not_tried_is_named_and_fails_strictly(book):
    result = claim("bytes-per-step", {"fp32": 1.0}, strict=False, book=book)
    assert [regime.id for regime in result.missing] == ["bf16"]  # the clock may be too loose
    assert result.as_recorded  # what was tried came out as recorded
    assert "Not tried: bf16." in repr(result)
    with pytest.raises(ClaimFailed, match="not tried: bf16"):
        claim("bytes-per-step", {"fp32": 1.0}, strict=True, book=book)


def test_a_gpu_regime_is_asked_for_where_there_is_a_gpu(book, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    case = {"this-machine": _timed(0.1)}
    assert claim("one-user-barely-uses-a-gpu", case, strict=True, book=book).verdict == "holds"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(ClaimFailed, match="not tried: gpu"):
        claim("one-user-barely-uses-a-gpu", case, strict=True, book=book)


def test_where_nothing_is_recorded_a_reader_is_told_and_a_strict_run_fails(tmp_path):
    content = yaml.safe_load(data.path("claims.yml").read_text(encoding="utf-8"))
    for entry in content["claims"]:
        entry["recorded"] = None
    file = tmp_path / "claims.yml"
    file.write_text(yaml.safe_dump(content))
    fresh = ledger.read(file)
    result = claim("prefill-is-one-pass", {"this-request": 1, "long-prompt": 1}, book=fresh)
    assert result.as_recorded is None
    assert "'holds' was foreseen" in repr(result)
    with pytest.raises(ClaimFailed, match="set recorded: holds"):
        claim("prefill-is-one-pass", {"this-request": 1, "long-prompt": 1}, strict=True, book=fresh)


def test_a_definition_or_norm_is_not_testable_and_says_why(book):
    for id in ("training-is-paid-once", "revenue-must-clear-cost"):
        result = claim(id, strict=True, book=book)
        assert result.verdict == "not testable"
        assert book[id].why in repr(result)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda b: claim("one-pas-per-token", book=b), "near are one-pass-per-token"),
        (lambda b: claim("worked-example", book=b), "needs a case"),
        (lambda b: claim("worked-example", measured=1.0, book=b), "pass cases"),
        (lambda b: claim("worked-example", {"sum": 1.0}, book=b), "no regime 'sum'"),
        (lambda b: claim("one-pass-per-token", {"short-answer": 3}, book=b), "bring source="),
        (
            lambda b: claim("forward-passes-only", [Case("greedy", 0, source=1)], book=b),
            "the ledger states 0; the case brings 1",
        ),
        (
            lambda b: claim("forward-passes-only", [Case("greedy", 0, ours=1)], book=b),
            "ours says nothing",
        ),
        (lambda b: claim("pure-function-of-tokens", {"logits": 0}, book=b), "source's statement"),
    ],
)
def test_wrong_use_is_answered_in_words(book, call, says):
    with pytest.raises(ValueError, match=says):
        call(book)


def test_strict_is_asked_of_the_environment_where_nothing_is_said(monkeypatch, book):
    false = {"this-request": 2, "long-prompt": 2}
    for value, strict in ((None, False), ("", False), ("0", False), ("1", True), ("true", True)):
        monkeypatch.delenv("INFERLAB_CI", raising=False)
        if value is not None:
            monkeypatch.setenv("INFERLAB_CI", value)
        assert strict_by_default() is strict
        if strict:
            with pytest.raises(ClaimFailed):
                claim("prefill-is-one-pass", false, book=book)
        else:
            assert claim("prefill-is-one-pass", false, book=book).verdict == "wrong"
    assert claim("prefill-is-one-pass", false, strict=False, book=book).as_recorded is False


# ----------------------------------------------------------------------- what is shown and kept


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.texts, self.scripts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open[-1] == "script":
            self.scripts[-1] += text
        else:
            self.texts.append(text)


NASTY = 'P = 3 < 4 & "x" | </script><script>alert(1)</script>'


@pytest.fixture
def nasty(book):
    cases = [Case("short-answer", 39, 40, 39, NASTY), Case("long-answer", 199, 200, 199)]
    return claim("one-pass-per-token", cases, book=book)


def test_the_html_is_whole_and_nothing_in_it_can_run(nasty):
    page = _Page()
    page.feed(nasty._repr_html_())
    assert page.open == []
    assert len(page.scripts) == 1
    assert json.loads(page.scripts[0]) == nasty.to_dict()
    assert any(NASTY in text for text in page.texts)
    assert "<script>alert" not in nasty._repr_html_()


def test_html_markdown_and_text_say_the_same(nasty):
    for shown in (nasty._repr_html_(), nasty._repr_markdown_(), repr(nasty)):
        for words in ("39", "exactly 199: agrees", "in passes", "refined", "What is inference?"):
            assert words in shown
    table = [line for line in nasty._repr_markdown_().splitlines() if line.startswith("|")]
    assert len(table) == 4
    assert {line.replace("\\|", "").count("|") for line in table} == {5}


def test_the_interval_and_n_are_shown(book):
    shown = repr(claim("compute-idle-in-decode", measured=_timed(0.04), book=book))
    assert "0.04 (95 % interval 0.0396 to 0.0404, n = 15)" in shown
    assert "below 0.1: agrees" in shown


def test_the_results_are_found_in_an_executed_notebook(nasty):
    output = {"output_type": "display_data", "data": {"text/html": nasty._repr_html_()}}
    lines = {"data": {"text/html": nasty._repr_html_().splitlines(keepends=True)}}
    other = {"data": {"text/html": "<p>class='inferlab-claim'</p>"}}
    notebook = {"cells": [{"outputs": [output, other, lines]}, {"source": "text"}]}
    assert collect(notebook) == [nasty.to_dict()] * 2
    assert collect({}) == []


@pytest.mark.slow
@pytest.mark.notebook
def test_a_result_survives_papermill(tmp_path):
    pytest.importorskip("papermill")
    nbformat = pytest.importorskip("nbformat")
    code = (
        "from inferlab.lab import claim\n"
        "claim('prefill-is-one-pass', {'this-request': 1, 'long-prompt': 1}, strict=False)"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    notebook.metadata["kernelspec"] = {"name": "here", "display_name": "here", "language": "python"}
    nbformat.write(notebook, tmp_path / "in.ipynb")
    kernel = tmp_path / "kernels" / "here"
    kernel.mkdir(parents=True)
    launch = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": launch, "display_name": "here", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    program = (
        "import sys, papermill\n"
        "papermill.execute_notebook(sys.argv[1], sys.argv[2], progress_bar=False)"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "in.ipynb"), str(tmp_path / "out.ipynb")],
        check=True, env={**os.environ, "JUPYTER_PATH": str(tmp_path)},
    )  # fmt: skip
    (found,) = collect(json.loads((tmp_path / "out.ipynb").read_text(encoding="utf-8")))
    assert (found["id"], found["verdict"]) == ("prefill-is-one-pass", "holds")
