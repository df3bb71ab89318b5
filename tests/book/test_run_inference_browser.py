"""Run inference in a real browser, by keyboard, on a clock that the tests move."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inferlab.book import browser
from inferlab.lab.recordings import Recording, Recordings

pytestmark = [pytest.mark.browser]

STYLE = Path(__file__).resolve().parents[2] / "chapters" / "_static"
FRAME = 20  # ms: a token is shown with the first picture after its time, 60 in a second
PLACE = {
    "cpu": "Test processor", "threads": 2, "torch": "2.13.0", "date": "2026-01-02T03:04:05+00:00",
    "commit": "abc1234",
}  # fmt: skip
HOW = {"model": "tiny", "dtype": "fp32", "device": "cpu", "cache": True, "batch": 1,
       "max_tokens": 8}  # fmt: skip
MARKUP = " <img src=x onerror=document.title='broken'>"


def recording(id, times, prompt="Why?", pieces=("<s>", "Why", "?"), place=PLACE, **how):
    answer = (" One", MARKUP, *(f" word {n}" for n in range(len(times) - 2)))
    return Recording(
        id, prompt, prompt, pieces, answer, tuple(times), tuple(range(1, len(times) + 1)),
        {**HOW, **how}, place,
    )  # fmt: skip


PLAIN = recording("plain", (0.5, 0.6, 0.9, 1.0, 1.4))
UNCACHED = recording("uncached", (0.5, 1.2, 2.0, 2.9, 4.2), cache=False)
BESIDE = recording("beside", (0.8, 1.0, 1.3), batch=8)
ELSEWHERE = recording("gpu", (0.01, 0.02), place={**PLACE, "accelerator": "Test GPU"})
LONG = recording("long", (2.0, 2.1), "Long", (*(f"word{n} " * 3 for n in range(299)), "x" * 200))
RUNS = (PLAIN, UNCACHED, BESIDE, ELSEWHERE, LONG)


def build(folder, runs):
    """A page of the book's theme with the recordings of one notebook; its address."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    source = folder / "source"
    source.mkdir(parents=True)
    (source / "index.rst").write_text("Page\n====\n\nText.\n\n.. run-inference::\n\nMore.\n")
    output = {"output_type": "execute_result", "data": {"text/html": Recordings(runs).to_html()}}
    cells = [{"cell_type": "code", "outputs": [output]}]
    (source / "a.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    settings = {
        "extensions": ["inferlab.book.sphinx"], "html_theme": "sphinx_book_theme",
        "html_static_path": [str(STYLE)], "html_css_files": ["book.css"], "language": "en",
        "html_context": {"default_mode": "auto"}, "html_theme_options": {"navbar_persistent": []},
    }  # fmt: skip
    said = io.StringIO()
    with docutils_namespace():
        places = (str(source), None, str(folder / "out"), str(folder / "trees"))
        Sphinx(*places, "html", settings, status=None, warning=said).build()
    assert not said.getvalue()
    return (folder / "out" / "index.html").as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return build(tmp_path_factory.mktemp("site"), RUNS)


@pytest.fixture(scope="module")
def chromium():
    """chromium(do, address) is do(page): one browser, in a thread of its own (see browser.py). The
    clock of the page stands still; a word on the console and a request off the disk are failures.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        manager = browser.open_browser()
        opened = pool.submit(manager.__enter__).result()

        def work(do, address, clock, options):
            context = opened.new_context(**options)
            page, said = context.new_page(), []
            page.on("console", lambda m: m.type in ("error", "warning") and said.append(m.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("request", lambda r: r.url.startswith("file:") or said.append(r.url))
            if clock:
                page.clock.install(time=0)
            page.goto(address)
            if clock:
                page.clock.pause_at(10_000)
            try:
                result = do(page)
                assert said == []
                return result
            finally:
                context.close()

        def run(do, address, clock=True, **options):
            return pool.submit(work, do, address, clock, options).result()

        yield run
        pool.submit(manager.__exit__, None, None, None).result()


def seen(page):
    """What each lane shows now."""
    return page.evaluate(
        """[...document.querySelectorAll('.ri-lane')].map(lane => ({
          phase: lane.dataset.phase,
          tokens: [...lane.querySelectorAll('.ri-answer span')]
            .filter(s => getComputedStyle(s).visibility === 'visible').length,
          counts: [...lane.querySelectorAll('.ri-counts dd')].map(e => e.textContent),
          times: [...lane.querySelectorAll('.ri-time')].map(e => e.textContent),
          bars: [...lane.querySelectorAll('.ri-track span')]
            .map(e => Math.round(e.getBoundingClientRect().width)),
          lit: getComputedStyle(lane.querySelector('.ri-prompt span')).backgroundColor,
        }))"""
    )


def tab_to(page, name):
    """Go on with the Tab key until the control of this class has the focus."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == name:
            return
    raise AssertionError(f"Tab never comes to {name}")


def moments(page, until):
    """When each token appeared, in ms since now, on a clock that moves by 10."""
    found = []
    for now in range(10, until + 1, 10):
        page.clock.run_for(10)
        found += [now] * (seen(page)[0]["tokens"] - len(found))
    return found


def test_by_keyboard_from_the_first_press_to_the_last_token(chromium, address):
    def do(page):
        (before,) = seen(page)
        assert before["phase"] == "waiting"
        assert before["tokens"] == 0
        tab_to(page, "ri-go")
        outline = "getComputedStyle(document.activeElement).outline"
        assert "3px" in page.evaluate(outline)
        page.keyboard.press("Enter")
        page.clock.run_for(480)
        (reading,) = seen(page)
        assert (reading["phase"], reading["tokens"]) == ("reading", 0)
        assert reading["counts"][:3] == ["0", "0", "0"]
        assert reading["lit"] != before["lit"]
        assert page.locator(".ri-says").text_content() == ""
        page.clock.run_for(20 + FRAME)
        (first,) = seen(page)
        assert (first["phase"], first["tokens"]) == ("writing", 1)
        assert first["counts"][:3] == ["1", "0", "1"]
        assert page.locator(".ri-says").text_content() == "Prompt read in 500 ms."
        page.clock.run_for(380 + FRAME)
        assert seen(page)[0]["tokens"] == 3
        assert seen(page)[0]["counts"][:3] == ["1", "2", "3"]
        page.clock.run_for(1000)
        (done,) = seen(page)
        assert (done["phase"], done["tokens"]) == ("done", 5)
        assert done["counts"] == ["1", "4", "5", "1.40 s"]
        assert done["times"] == ["500 ms", "900 ms"]
        assert done["bars"][1] / done["bars"][0] == pytest.approx(0.9 / 0.5, rel=0.02)
        result = "Answer written: 5 tokens in 1.40 s, 1 prefill pass and 4 decode passes."
        assert page.locator(".ri-says").text_content() == result
        assert page.locator(".ri-go").text_content() == "Run again"
        origin = page.locator(".ri-origin").text_content()
        assert "tiny on Test processor, 2 threads, torch 2.13.0, 2026-01-02" in origin

    chromium(do, address)


@pytest.mark.parametrize("factor", [1, 2, 0.5])
def test_the_pace_is_that_of_the_data(chromium, tmp_path, factor):
    """The same recording with other times replays at other times: nothing comes from the script."""
    times = tuple(t * factor for t in PLAIN.times)
    where = build(tmp_path, (recording("x", times),))

    def do(page):
        page.locator(".ri-go").focus()
        page.keyboard.press("Enter")
        found = moments(page, round(times[-1] * 1000) + 50)
        assert len(found) == len(times)
        late = [shown - 1000 * t for shown, t in zip(found, times, strict=True)]
        assert min(late) >= 0
        assert max(late) <= FRAME + 10, late

    chromium(do, where)


def test_ten_times_slower_also_while_it_runs(chromium, address):
    def do(page):
        page.locator(".ri-go").focus()
        page.keyboard.press("Enter")
        page.clock.run_for(300)
        tab_to(page, "ri-slow")
        page.keyboard.press("Space")
        found = moments(page, 3200)
        wanted = [(0.5 - 0.3) * 1e4, (0.6 - 0.3) * 1e4]
        assert found == pytest.approx(wanted, abs=10 * FRAME + 10)
        page.keyboard.press("Space")
        page.clock.run_for(1000)
        assert seen(page)[0]["tokens"] == 5

    chromium(do, address)


def test_a_race_of_two_settings(chromium, address):
    def do(page):
        tab_to(page, "ri-against")
        page.keyboard.press("ArrowDown")
        page.locator(".ri-go").focus()
        page.keyboard.press("Enter")
        page.clock.run_for(1000 + FRAME)
        assert [lane["tokens"] for lane in seen(page)] == [4, 1]
        page.clock.run_for(3400)
        one, two = seen(page)
        assert [one["counts"][3], two["counts"][3]] == ["1.40 s", "4.20 s"]
        assert one["counts"][:3] == two["counts"][:3] == ["1", "4", "5"]
        assert two["bars"][0] == pytest.approx(one["bars"][0], abs=1)  # on one scale
        assert two["bars"][1] / one["bars"][1] == pytest.approx(3.7 / 0.9, rel=0.05)
        said = page.locator(".ri-says").text_content()
        assert said == (
            "fp32, KV cache, Test processor: 5 tokens in 1.40 s. "
            "fp32, no cache, Test processor: 5 tokens in 4.20 s, 3 times as long."
        )
        page.locator(".ri-against").select_option(label="fp32, KV cache, Test GPU")
        assert [lane["tokens"] for lane in seen(page)] == [0, 0]
        page.keyboard.press("Tab")
        page.locator(".ri-go").focus()
        page.keyboard.press("Enter")
        page.clock.run_for(100)
        assert [lane["tokens"] for lane in seen(page)] == [0, 2]
        origin = page.locator(".ri-origin").text_content()
        assert "Test processor" in origin
        assert "Test GPU" in origin

    chromium(do, address)


def test_stop_again_and_another_request(chromium, address):
    def do(page):
        page.locator(".ri-go").focus()
        page.keyboard.press("Enter")
        page.clock.run_for(700)
        page.keyboard.press("Enter")
        stopped = seen(page)
        assert stopped[0]["tokens"] == 2
        page.clock.run_for(1000)
        assert seen(page) == stopped
        page.keyboard.press("Enter")
        page.clock.run_for(300)
        assert seen(page)[0]["tokens"] == 0
        page.locator(".ri-run").select_option(index=2)
        assert "7 copies of this request" in page.locator(".ri-note").text_content()
        page.locator(".ri-request").focus()
        page.keyboard.press("ArrowDown")
        (long,) = seen(page)
        assert long["phase"] == "waiting"
        assert page.locator(".ri-prompt span").count() == 300
        assert page.locator(".ri-against").is_disabled()
        assert page.locator(".ri-go").text_content() == "Run"
        page.clock.run_for(5000)
        assert seen(page)[0]["tokens"] == 0  # the replay ended with the choice

    chromium(do, address)


def test_without_motion_all_is_there_at_once_or_pass_by_pass(chromium, address):
    def do(page):
        tab_to(page, "ri-next")
        for tokens in (1, 2):
            page.keyboard.press("Enter")
            assert seen(page)[0]["tokens"] == tokens
        assert seen(page)[0]["counts"] == ["1", "1", "2", "0.60 s"]
        page.locator(".ri-go").focus()
        page.keyboard.press("Enter")
        assert seen(page)[0]["tokens"] == 5
        assert seen(page)[0]["times"] == ["500 ms", "900 ms"]
        page.clock.run_for(500)
        assert seen(page)[0]["phase"] == "done"

    chromium(do, address, reduced_motion="reduce")
    assert chromium(lambda page: page.locator(".ri-next").is_hidden(), address)


@pytest.mark.parametrize("theme", browser.THEMES)
def test_it_fits_and_axe_finds_nothing(chromium, address, theme):
    from axe_playwright_python.sync_playwright import Axe

    axe = {"runOnly": {"type": "tag", "values": browser.WCAG}, "preload": False}

    def look(page, phase):
        for width in browser.WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(over) <= 0, f"{phase} at {width} px"
            wide = """[...document.querySelectorAll('run-inference *')].filter(
              e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth && e.tagName !== 'SELECT'
            ).map(e => e.className || e.tagName)"""
            assert page.evaluate(wide) == [], f"{phase} at {width} px"
            found = Axe().run(page, "run-inference", axe).response["violations"]
            assert [violation["id"] for violation in found] == [], f"{phase} at {width} px"

    def do(page):
        page.locator(".ri-against").select_option(index=2)
        for phase in ("reading", "writing", "done"):
            page.locator(".ri-go").click()
            page.wait_for_selector(f".ri-lane[data-phase={phase}]")
            if phase != "done":
                page.locator(".ri-go").click()  # stop there
            look(page, phase)
        page.locator(".ri-request").select_option(index=1)
        look(page, "a long prompt")

    # axe waits by the clock, so this one runs
    chromium(do, address, clock=False, color_scheme=theme)


def test_without_scripts_the_figure_stands_there(chromium, address):
    def do(page):
        figure = page.locator(".ri-static")
        assert figure.is_visible()
        text = figure.inner_text()
        assert MARKUP.strip() in text
        assert "4 decode passes wrote the rest: 5 in all, in 1.40 s" in text
        assert "Test processor" in text
        assert '"runs"' not in page.locator("body").inner_text()
        widths = [b.bounding_box()["width"] for b in page.locator(".ri-track span").all()]
        assert widths[1] / widths[0] == pytest.approx(0.9 / 0.5, rel=0.02)

    chromium(do, address, clock=False, java_script_enabled=False)


def test_markup_in_a_token_stays_text(chromium, address):
    def do(page):
        page.locator(".ri-go").click()
        page.clock.run_for(3000)
        assert page.locator(".ri-answer span").nth(1).text_content() == MARKUP
        assert page.locator("run-inference img").count() == 0
        assert "broken" not in page.title()

    chromium(do, address)
