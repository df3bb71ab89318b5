"""What a reader meets first: every planted fault is found in a browser, none on a sound site."""

from __future__ import annotations

import pytest

from inferlab.book import doors, reading, site_frame

pytestmark = [pytest.mark.browser]

PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Page</title>
<link rel="icon" href="data:,"><script defer src="/a.js"></script>{head}</head>
<body><main><h1>Inference</h1><p>A sentence that is long enough to be read by somebody.</p>
<button class="search-button__button">Search</button><form action="search.html"><input name="q">
</form>{body}</main></body></html>"""
OPEN = "document.querySelector('button').onclick = () => document.querySelector('input').focus();"
FOUND = "document.querySelector('main').innerHTML += '<ul id=search-results><li><a>x</a></li></ul>'"
LOST = (
    '<base href="/book/"><main><h1>Lost</h1><p>There is no page at this address. '
    '<a href="a/one.html">To the first page</a>'
)


@pytest.fixture
def made(tmp_path):
    """made(head, body, lost=, found=, weight=) is what the check says of such a site."""

    def make(head="", body="", lost=LOST, found=FOUND, weight=0, to="a/one.html"):
        (tmp_path / "a").mkdir()
        (tmp_path / "a.js").write_text(OPEN)
        (tmp_path / "b.js").write_text("document.body.classList.add('ready')")
        page = PAGE.format(head="", body="<p>" + "x" * weight + "</p>")
        (tmp_path / "index.html").write_text(page)
        (tmp_path / "a" / "one.html").write_text(PAGE.format(head=head, body=body))
        text = PAGE.format(head="", body=f"<script>{found}</script>")
        (tmp_path / "search.html").write_text(text)
        (tmp_path / "404.html").write_text(lost)
        (tmp_path / "door.html").write_text(doors.front("Inference", to))
        return [str(problem) for problem in reading.check(tmp_path)]

    return make


def test_a_sound_site_has_no_problem(made):
    assert made() == []


def test_a_script_that_holds_up_the_text_is_found(made):
    (found,) = made(head='<script src="/b.js"></script>')
    assert found == "a/one.html: slow line: no text is painted before the scripts come"


def test_text_that_a_script_writes_is_found(made):
    body = "<p id=w></p><script>document.querySelector('#w').append('Only with scripts')</script>"
    (found,) = made(body=body)
    assert found == "a/one.html: without scripts: does not show 'Only with scripts'"


def test_text_that_a_script_uncovers_is_found(made):
    hide = "<style>body:not(.ready) .late { display: none }</style>"
    body = '<p class="late">Late</p><script src="/b.js" defer></script>'
    (found,) = made(head=hide, body=body)
    assert found == "a/one.html: without scripts: does not show 'Late'"


def test_a_heavy_first_page_is_found(made):
    (found,) = made(weight=reading.FIRST_LOAD)
    assert found.startswith("index.html: weight: 500,")


def test_a_search_that_finds_nothing_is_found(made):
    (found,) = made(found="0")
    assert found.startswith("search.html: search: 'inference' finds nothing")


def test_a_wrong_address_that_leads_nowhere_is_found(made):
    found = made(lost=LOST.replace('<base href="/book/">', ""))
    assert found == ["404.html: wrong address: from /chapters/nowhere/at/all.html: "
                     "/chapters/nowhere/at/a/one.html leads nowhere"]  # fmt: skip


def test_a_door_that_leads_nowhere_is_found(made):
    assert made(to="nowhere.html") == ["door.html: without scripts: /nowhere.html leads nowhere"]


def test_a_site_of_many_pages_has_a_page_for_wrong_addresses(tmp_path):
    assert list(site_frame.doors(tmp_path)) == []
    (tmp_path / "search.html").touch()
    assert list(site_frame.doors(tmp_path)) == ["there is no 404.html"]
    (tmp_path / "404.html").write_text("<p>Lost</p>")
    assert "no base" in next(site_frame.doors(tmp_path))
    (tmp_path / "404.html").write_text(LOST)
    assert list(site_frame.doors(tmp_path)) == []
