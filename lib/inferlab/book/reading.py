"""What a reader meets before anything else works, in a real browser: how much a page loads, whether
its text waits for scripts, what is left without them, the search, an address that leads nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inferlab.book.browser import ONE_TEMPLATE, listen, serve, share
from inferlab.book.site import Problem, html_pages

__all__ = ["FIRST_LOAD", "check", "loaded"]

FIRST_LOAD = 500_000
"""Bytes that the front door and the first page may load before a reader does anything, without
compression."""

PATIENCE = 5_000  # milliseconds; a page of text is painted in a tenth of that
SETTLE = 150
EVERY = 10


def check(site: Path) -> list[Problem]:
    """All that a reader would miss on a slow line, without scripts, or at a wrong address.

    Of pages made from one template (those of equations, symbols and operations) the text of every
    tenth is looked at.
    """
    files = {file.relative_to(site).as_posix(): file for file in html_pages(site)}
    passed = {name for name, file in files.items() if _LEADS_ON in file.read_text("utf-8")}
    same = [name for name in files if any(part in f"/{name}" for part in ONE_TEMPLATE)]
    left = passed.union(name for index, name in enumerate(same) if index % EVERY)
    with serve(site) as origin:
        asked: list[Callable[[Any], list[Problem]]] = []
        if "index.html" in files:
            asked.append(lambda browser: _weight(browser, origin))
        if "search.html" in files:
            asked.append(lambda browser: _search(browser, origin))
        if "404.html" in files:
            asked.append(lambda browser: _lost(browser, site))
        for name in files:
            if name in passed:
                asked.append(lambda browser, name=name: _onward(browser, origin, name))
            elif name not in left:
                asked.append(lambda browser, name=name: _text(browser, origin, name))
        return share(lambda browser, ask: ask(browser), asked)


def loaded(browser: Any, address: str) -> list[tuple[str, int]]:
    """Every response of a cold load of a page, with the bytes of its body; `serve` packs none."""
    context = browser.new_context()
    page, answers = context.new_page(), []
    page.on("response", lambda answer: answers.append(answer))
    page.goto(address, wait_until="networkidle")
    page.wait_for_timeout(SETTLE)
    found = [
        (answer.url, answer.request.sizes()["responseBodySize"]) for answer in answers if answer.ok
    ]
    context.close()
    return found


def _text(browser: Any, origin: str, name: str) -> list[Problem]:
    """The text of a page: painted while every script is on its way, there without scripts."""
    slow, full, plain = (browser.new_context(java_script_enabled=on) for on in (True, True, False))
    held: list[Any] = []
    slow.route(re.compile(r"\.js(\?|$)"), lambda route: held.append(route))
    problems = []
    painted = _painted(slow, f"{origin}/{name}")
    while held:
        held.pop().abort()
    if not painted:
        problems.append(Problem(name, "slow line", "no text is painted before the scripts come"))
    elif name != "search.html":  # a search without scripts cannot be; it says so
        left = set(_shown(plain, f"{origin}/{name}", 0))
        for text in dict.fromkeys(_shown(full, f"{origin}/{name}", SETTLE)):
            if text not in left:
                what = f"does not show {text[:60]!r}"
                problems.append(Problem(name, "without scripts", what))
    for context in (slow, full, plain):
        context.close()
    return problems


def _onward(browser: Any, origin: str, name: str) -> list[Problem]:
    """Whether a page that only leads on to another one does so without scripts."""
    problems, at = [], f"{origin}/{name}"
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(at, wait_until="commit")
    try:
        page.wait_for_url(lambda url: url != at, timeout=PATIENCE)
        if not context.request.get(page.url).ok:
            what = f"{page.url.removeprefix(origin)} leads nowhere"
            problems.append(Problem(name, "without scripts", what))
    except Exception as fault:
        why = str(fault).splitlines()[0]
        problems.append(Problem(name, "without scripts", f"does not lead on: {why}"))
    context.close()
    return problems


def _painted(context: Any, address: str) -> bool:
    """Whether a page shows text while its scripts are asked for and not answered."""
    from playwright.sync_api import TimeoutError as Late

    page = context.new_page()
    page.goto(address, wait_until="commit")
    try:
        page.wait_for_function(_PAINTED, timeout=PATIENCE)
    except Late:
        return False
    finally:
        page.close(run_before_unload=False)
    return True


def _shown(context: Any, address: str, settle: int) -> list[str]:
    """The blocks of text that a page shows, in their order."""
    page = context.new_page()
    page.goto(address, wait_until="load")
    page.wait_for_timeout(settle)
    found = page.evaluate(_SHOWN)
    page.close()
    return found


def _weight(browser: Any, origin: str) -> list[Problem]:
    """Whether the front door and the page behind it are light."""
    found = loaded(browser, f"{origin}/index.html")
    whole = sum(size for _, size in found)
    if whole <= FIRST_LOAD:
        return []
    most = sorted(found, key=lambda item: -item[1])[:3]
    names = ", ".join(f"{url.removeprefix(origin)} {size:,}" for url, size in most)
    return [Problem("index.html", "weight", f"{whole:,} B are loaded, the most by {names}")]


def _search(browser: Any, origin: str) -> list[Problem]:
    """Type a word of the first page into its search, press Enter: the page must be found."""
    problems: list[Problem] = []
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    page = context.new_page()
    listen(page, origin, "search.html", problems)
    page.goto(f"{origin}/index.html", wait_until="networkidle")
    title = page.locator("h1").first.inner_text()
    word = max(re.findall(r"[a-z]+", title.lower()), key=len)
    try:
        page.locator(".search-button__button:visible").first.click(timeout=PATIENCE)
        page.keyboard.type(word)
        page.keyboard.press("Enter")
        page.wait_for_url("**/search.html?**", timeout=PATIENCE)
        page.locator("#search-results li a").first.wait_for(timeout=PATIENCE)
    except Exception as fault:
        why = str(fault).splitlines()[0]
        problems.append(Problem("search.html", "search", f"{word!r} finds nothing: {why}"))
    context.close()
    return problems


def _lost(browser: Any, site: Path) -> list[Problem]:
    """Whether the page of a wrong address leads on, however deep that address is."""
    text = (site / "404.html").read_text(encoding="utf-8")
    base = re.search(r'<base href="([^"]*)"', text)
    at = base[1] if base else "/"
    problems = []
    with serve(site, at=at) as origin:
        for address in ("nowhere", "chapters/nowhere/at/all.html"):
            context = browser.new_context()
            page = context.new_page()
            page.goto(f"{origin}{at}{address}", wait_until="networkidle")
            for link in page.eval_on_selector_all("a", "found => found.map(a => a.href)"):
                answer = context.request.get(link)
                if not answer.ok:
                    what = f"from /{address}: {link.removeprefix(origin)} leads nowhere"
                    problems.append(Problem("404.html", "wrong address", what))
            context.close()
    return problems


_LEADS_ON = '<meta http-equiv="refresh"'

_PAINTED = """() => performance.getEntriesByName('first-contentful-paint').length > 0
  && document.querySelector('main, body').innerText.trim().length > 40"""

# Text that is drawn, block by block; what a script adds is the element's own matter
_SHOWN = """() => [...document.querySelectorAll('main :is(h1, h2, h3, p, li, td, th, dt, dd, pre)')]
  .filter(e => e.checkVisibility() && !e.closest('run-inference, .tooltip, .bd-toc, header'))
  .map(e => { const c = e.cloneNode(true); c.querySelectorAll(
    'button, .headerlink, mjx-container, .math, svg').forEach(x => x.remove());
    return c.textContent.replace(/\\s+/g, ' ').trim(); })
  .filter(text => text)"""
