"""Run inference on a page: what the directive writes, and that nothing in it is made up."""

from __future__ import annotations

import dataclasses
import io
import json
import re

import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from inferlab import data
from inferlab.book import build
from inferlab.book.sphinx import run_inference, run_inference_view
from inferlab.lab.recordings import Recording, Recordings

PLACE = {
    "cpu": "Test processor", "threads": 2, "torch": "2.13.0", "date": "2026-01-02T03:04:05+00:00",
    "commit": "abc1234",
}  # fmt: skip
HOW = {"model": "tiny", "dtype": "fp32", "device": "cpu", "cache": True, "batch": 1,
       "max_tokens": 4}  # fmt: skip


def recording(id="a", prompt="Hi", times=(0.5, 0.6, 0.7, 1.0), label="", place=PLACE, **how):
    answer = (" Oh", " <b>", "&", " no")[: len(times)]
    return Recording(
        id, label or prompt, prompt, ("<s>", prompt), answer, tuple(times),
        tuple(range(1, len(times) + 1)), {**HOW, **how}, place,
    )  # fmt: skip


def read(html):
    """The element, and its data as a browser reads them."""
    soup = BeautifulSoup(html, "html.parser")
    element = soup.find("run-inference")
    return element, json.loads(element.find("script").string)


def notebook(*runs):
    output = {"output_type": "execute_result", "metadata": {}, "execution_count": 1,
              "data": {"text/html": Recordings(runs).to_html()}}  # fmt: skip
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": 1, "source": "",
            "outputs": [output]}  # fmt: skip
    return {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """site(text, {file: notebook}) builds two pages; returns (page, other page, warnings)."""
    monkeypatch.setattr(run_inference.data, "names", lambda: ())
    monkeypatch.delenv("INFERLAB_CI", raising=False)

    def build(text=".. run-inference::", notebooks=None):
        source = tmp_path / "source"
        source.mkdir()
        title = "Page\n====\n\n"
        (source / "index.rst").write_text(title + text + "\n\n.. toctree::\n\n   other\n")
        (source / "other.rst").write_text("Other\n=====\n")
        for name, content in (notebooks or {}).items():
            (source / name).parent.mkdir(exist_ok=True)
            (source / name).write_text(json.dumps(content), encoding="utf-8")
        said = io.StringIO()
        settings = {"extensions": ["inferlab.book.sphinx"], "html_theme": "basic"}
        folders = [str(tmp_path / name) for name in ("out", "doctrees")]
        with docutils_namespace():
            app = Sphinx(str(source), None, *folders, "html", settings, status=None, warning=said)
            app.build()
        pages = [(tmp_path / "out" / f"{n}.html").read_text("utf-8") for n in ("index", "other")]
        return *pages, said.getvalue()

    return build


def test_times_are_the_recorded_ones_to_a_tenth_of_a_millisecond():
    run = recording(times=(0.123456, 0.2, 1.00004, 1.00006))
    (shown,) = run_inference_view.data([run])["runs"]
    assert shown["ms"] == [123.5, 200, 1000, 1000.1]
    assert shown["passes"] == [1, 2, 3, 4]
    assert shown["answer"] == list(run.answer)


def test_a_request_gathers_its_runs_and_texts_are_written_once():
    gpu = {**PLACE, "accelerator": "Test GPU"}
    runs = [
        recording("a"), recording("b", cache=False), recording("c", prompt="Yo"),
        recording("d", batch=8, dtype="bf16"), recording("e", max_tokens=3, times=(0.1, 0.2, 0.3)),
    ]  # fmt: skip
    seen = run_inference_view.data(runs)
    assert [r["runs"] for r in seen["requests"]] == [[0, 1, 3], [2], [4]]
    assert seen["requests"][0]["label"] == "Hi (2 tokens read, up to 4 written)"
    labels = ["fp32, KV cache", "fp32, no cache", "fp32, KV cache", "bf16, KV cache, 8 at once"]
    assert [r["label"] for r in seen["runs"]][:4] == labels
    assert len(seen["prompts"]) == 2
    assert seen["machines"] == [f"tiny on {runs[0].origin}"]
    elsewhere = run_inference_view.data([runs[0], recording("g", place=gpu, model="large")])
    assert [r["label"] for r in elsewhere["runs"]] == [
        "tiny, fp32, KV cache, Test processor", "large, fp32, KV cache, Test GPU",
    ]  # fmt: skip
    assert len(elsewhere["machines"]) == 2
    assert [r["runs"] for r in elsewhere["requests"]] == [[0, 1]]


def test_of_two_recordings_of_one_run_the_later_stays():
    older = recording(place={**PLACE, "date": "2025-12-31T00:00:00+00:00"})
    newer, other = recording(times=(1.0, 2.0)), recording("b")
    assert run_inference_view.latest([older, other, newer]) == [newer, other]
    assert run_inference_view.latest([newer, other, older]) == [newer, other]


def test_the_figure_without_scripts_is_to_scale():
    element, _ = read(run_inference_view.element([recording()]))
    element.find("script").decompose()
    bars = [span["style"] for span in element.select(".ri-track span")]
    assert bars == ["width:50.0%", "width:50.0%"]
    text = " ".join(element.get_text(" ").split())
    assert "Oh <b>& no" in text
    assert "1 prefill pass read 2 tokens and wrote the first of the answer" in text
    assert "3 decode passes wrote the rest: 4 in all, in 1.00 s (fp32, KV cache)." in text
    assert "Recorded: tiny on Test processor, 2 threads" in text
    assert "2026-01-02" in text


def test_no_text_breaks_out():
    bad = "</script><img src=x onerror=alert(1)>\u2028&amp;"
    run = recording(prompt=bad, place={**PLACE, "cpu": bad})
    run = dataclasses.replace(run, answer=(bad,) * 4)
    html = run_inference_view.element([run])
    assert html.count("</script>") == 1
    assert "<img" not in html
    element, seen = read(html)
    assert seen["runs"][0]["answer"] == [bad] * 4
    assert seen["prompts"] == [["<s>", bad]]
    assert element.find("img") is None


def test_a_page_has_the_recordings_of_the_notebooks_and_others_pay_nothing(site):
    first, second = recording("a"), recording("b", cache=False, times=(2.0, 4.0))
    page, other, said = site(notebooks={
        "a/one.ipynb": notebook(first), "b.ipynb": notebook(second),
        "_static/no.ipynb": notebook(recording("c")), "empty.ipynb": {"cells": []},
    })  # fmt: skip
    assert not said
    _, seen = read(page)
    assert [run["id"] for run in seen["runs"]] == ["a", "b"]
    assert seen["runs"][1]["ms"] == [2000, 4000]
    assert re.search(r'<script defer="defer" src="_static/run-inference\.js\?v=\w+">', page)
    assert "_static/run-inference.css" in page
    assert "run-inference" not in other


def test_recordings_of_another_machine_come_with_the_data(site, tmp_path, monkeypatch):
    names = ("measurements/gpu.json", "measurements/rates.json", "measurements/readme.md", "x.json")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"unread": true}')
    gpu = recording("gpu", place={**PLACE, "accelerator": "Test GPU"})
    (tmp_path / names[0]).write_text(Recordings((gpu,)).to_json())
    monkeypatch.setattr(run_inference.data, "names", lambda: names)
    monkeypatch.setattr(run_inference.data, "path", lambda name: tmp_path / name)
    page, _, said = site(notebooks={"a.ipynb": notebook(recording("cpu"))})
    assert not said
    labels = [run["label"] for run in read(page)[1]["runs"]]
    assert labels == ["fp32, KV cache, Test processor", "fp32, KV cache, Test GPU"]


def test_a_new_measurement_makes_the_book_anew(tmp_path, monkeypatch):
    for name in ("source/page.md", "data/measurements/gpu.json", "data/models.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("as it was")
    monkeypatch.setattr(data, "folder", lambda: tmp_path / "data")

    def key():
        return build._book_key(tmp_path / "source")

    before = key()
    (tmp_path / "data" / "models.csv").write_text("no page reads this")
    assert key() == before
    (tmp_path / "data" / "measurements" / "gpu.json").write_text("changed")
    assert key() != before


def test_without_recordings_the_page_says_so(site):
    page, _, said = site()
    assert not said
    assert "No run has been recorded yet" in page
    assert "<run-inference" not in page
    assert "run-inference.js" not in page


def test_a_strict_build_wants_recordings(site, monkeypatch):
    monkeypatch.setenv("INFERLAB_CI", "1")
    _, _, said = site()
    assert "index.rst:4: WARNING: run-inference: no run is recorded" in said


def test_a_recording_that_was_changed_stops_the_build(site):
    book = notebook(recording())
    (output,) = book["cells"][0]["outputs"]
    output["data"]["text/html"] = output["data"]["text/html"].replace("0.7", "0.07")
    page, _, said = site(notebooks={"a.ipynb": book})
    assert "WARNING: a.ipynb: this is no recording of a run ('a'): its times go backwards" in said
    assert "<run-inference" not in page


def test_the_script_is_small_and_asks_for_nothing():
    script = (run_inference.STATIC / "run-inference.js").read_text(encoding="utf-8")
    style = (run_inference.STATIC / "run-inference.css").read_text(encoding="utf-8")
    assert len(script) + len(style) < 16_000
    for word in ("fetch(", "XMLHttpRequest", "import(", "innerHTML", "http", "eval("):
        assert word not in script
    assert "url(" not in style
    assert "random" not in script
