"""What only a real browser can tell of a built page: requests, console, width, accessibility.

Drives an installed Chrome or Chromium; none is ever downloaded.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from pathlib import Path
from typing import Any

from inferlab.book.pages import BookError
from inferlab.book.site import Problem, html_pages

__all__ = [
    "ONE_TEMPLATE", "WIDTHS", "apart", "browser_help", "check", "find_browser", "listen",
    "open_browser", "serve", "share",
]  # fmt: skip

WIDTHS = (390, 800, 1300)
THEMES = ("light", "dark")
ONE_TEMPLATE = ("/04_math/equations/",)
AXE = (("light", 390), ("light", 1300), ("dark", 800))
"""Views in which axe looks at a page: each width and each theme. Colours are the theme's matter and
what is shown the width's, so not every pair."""
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
COMMANDS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
APPLICATIONS = ("Google Chrome", "Chromium")
SETTLE = 400  # milliseconds; the theme waits 300 after a change of width, then sets tab stops


def find_browser() -> Path | None:
    """An installed Chrome or Chromium, or None. The variable INFERLAB_BROWSER overrides."""
    named = os.environ.get("INFERLAB_BROWSER")
    if named:
        return Path(named) if Path(named).exists() else None
    for command in COMMANDS:
        found = shutil.which(command)
        if found:
            return Path(found)
    for name in APPLICATIONS if sys.platform == "darwin" else ():
        file = Path("/Applications") / f"{name}.app" / "Contents" / "MacOS" / name
        if file.exists():
            return file
    return None


def browser_help() -> str:
    """How to come by a browser on this system, in one sentence."""
    if sys.platform == "darwin":
        return "install Google Chrome or Chromium into Applications"
    return "install Chromium (Debian and Ubuntu: apt-get install chromium) or Google Chrome"


@contextmanager
def serve(site: Path, at: str = "/") -> Iterator[str]:
    """The site on a free port of this machine alone; yields its address without a last slash.

    at  the path under which the site lies, as /NAME/ on GitHub Pages. Like there, 404.html is what
    is shown at an address that leads nowhere.
    """

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def translate_path(self, path: str) -> str:
            inside = path.startswith(at)
            return super().translate_path("/" + path.removeprefix(at) if inside else "/nowhere")

        def send_error(self, code: int, *words: Any) -> None:
            if code != 404 or not (site / "404.html").is_file():
                return super().send_error(code, *words)
            body = (site / "404.html").read_bytes()
            self.send_response(code)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A browser may hang up in the middle of an answer; that is no fault of the site."""

    server = Server(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def open_browser() -> Iterator[Any]:
    """A headless browser as Playwright drives it; BookError when there is none."""
    executable = find_browser()
    if executable is None:
        raise BookError(f"no Chrome or Chromium was found: {browser_help()}")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise BookError(f"{error}: pip install 'inferlab[dev]'") from error
    flags = [*FLAGS, "--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else FLAGS
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(executable), headless=True, args=flags)
        try:
            yield browser
        finally:
            browser.close()


def check(site: Path, *, accessibility: bool = True) -> list[Problem]:
    """Open every page at three widths and in both themes; returns all that is wrong.

    Pages made from one template (those of equations, symbols and operations) take turns: each is
    opened in one width and theme, the next in the next. axe looks at the views of `AXE`.
    A request to another place than the site, a request that fails, an error on the console, a
    script that breaks, a page wider than the window, a violation of WCAG 2.2 AA that axe finds.
    """

    with serve(site) as origin:

        def look(browser: Any, page: tuple[str, dict[str, tuple[int, ...]]]) -> list[Problem]:
            name, views = page
            return [
                problem
                for theme, widths in views.items()
                for problem in _look(browser, origin, name, theme, widths, accessibility)
            ]

        return list(dict.fromkeys(share(look, _views(site))))


def share(look: Callable[[Any, Any], list[Problem]], items: Iterable[Any]) -> list[Problem]:
    """The problems `look(browser, item)` returns for all items, in their order.

    As many browsers as there are cores, at most four, take the next item when they are done with
    one: a page waits most of the time for what it is to show.
    """
    found: dict[int, list[Problem]] = {}
    waiting, taken = iter(enumerate(items)), threading.Lock()

    def work() -> None:
        with open_browser() as browser:
            while True:
                with taken:
                    index, item = next(waiting, (-1, None))
                if index < 0:
                    return
                found[index] = look(browser, item)

    apart(work, min(4, os.cpu_count() or 1))
    return [problem for index in sorted(found) for problem in found[index]]


def apart(look: Callable[[], Any], threads: int = 1) -> Any:
    """What `look` returns, called in threads of its own: Playwright's switching of stacks upsets
    CPython 3.11's count of its depth, after which the caller's ast.parse would fail.
    """
    with ThreadPoolExecutor(max_workers=threads) as pool:
        return [done.result() for done in [pool.submit(look) for _ in range(threads)]][0]


def _views(site: Path) -> Iterator[tuple[str, dict[str, tuple[int, ...]]]]:
    """Each page's name, and theme -> widths in which it is looked at."""
    turns = cycle([(theme, width) for theme in THEMES for width in WIDTHS])
    for file in html_pages(site):
        name = file.relative_to(site).as_posix()
        if any(part in f"/{name}" for part in ONE_TEMPLATE):
            theme, width = next(turns)
            yield name, {theme: (width,)}
        else:
            yield name, dict.fromkeys(THEMES, WIDTHS)


def _look(
    browser: Any, origin: str, name: str, theme: str, widths: Iterable[int], accessibility: bool
) -> list[Problem]:
    """One page, loaded once and looked at in each width."""
    problems: list[Problem] = []
    context = browser.new_context(color_scheme=theme)
    page = context.new_page()
    listen(page, origin, name, problems)
    page.goto(f"{origin}/{name}", wait_until="networkidle")
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(SETTLE)
        over = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        if over > 0:
            wide = page.evaluate(_WIDEST)
            what = f"{over} px wider than {width} px ({wide})"
            problems.append(Problem(name, "horizontal scroll", what))
        if accessibility and (theme, width) in AXE:
            label = f"axe, {theme}, {width} px"
            problems += [Problem(name, label, what) for what in _axe(page)]
    context.close()
    return problems


def listen(page: Any, origin: str, name: str, problems: list[Problem]) -> None:
    """Collect what the page asks for and complains of, from now on."""

    def note(check: str, what: str) -> None:
        problems.append(Problem(name, check, what))

    def request(asked: Any) -> None:
        if not asked.url.startswith((origin + "/", "data:", "blob:")):
            note("request off the site", asked.url)

    def message(said: Any) -> None:
        if said.type == "error":
            note("console", said.text)

    page.on("request", request)
    page.on("requestfailed", lambda asked: note("request failed", asked.url.removeprefix(origin)))
    page.on("console", message)
    page.on("pageerror", lambda error: note("script", str(error)))
    page.on(
        "response",
        lambda answer: (
            note("request failed", f"{answer.status} {answer.url.removeprefix(origin)}")
            if answer.status >= 400
            else None
        ),
    )


def _axe(page: Any) -> Iterator[str]:
    """What axe-core finds against WCAG 2.2 AA: the rule, and the first places."""
    from axe_playwright_python.sync_playwright import Axe

    # preload would read the style sheets once more, with their own links taken for the page's
    options = {
        "runOnly": {"type": "tag", "values": WCAG},
        "resultTypes": ["violations"],
        "preload": False,
    }
    for violation in Axe().run(page, options=options).response["violations"]:
        nodes = violation["nodes"]
        if violation["id"] == "target-size":
            # a letter of a formula is as large as it is; the same links stand in the table of its
            # parts, which is one of the exceptions of success criterion 2.5.8 ("equivalent")
            nodes = [node for node in nodes if "eq-part" not in node["html"]]
        places = [" ".join(map(str, node["target"])) for node in nodes]
        if not places:
            continue
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        yield f"{violation['id']} ({violation['help']}): {', '.join(places[:3])}{more}"


_WIDEST = """(() => {
  const limit = document.documentElement.clientWidth;
  const wide = [...document.body.querySelectorAll('*')]
    .filter(e => e.getBoundingClientRect().right > limit + 1);
  const e = wide[wide.length - 1];
  return e ? e.tagName.toLowerCase() + '.' + e.className : 'nothing named';
})()"""
