"""What a built page must satisfy, read from its HTML: links, pictures, scripts, clean outputs.

`browser.py` and `reading.py` hold what only a real browser can tell.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

from inferlab.book import site_frame

__all__ = ["Page", "Problem", "check", "html_pages"]

# Names under which a picture says nothing: a file's name, a hash, or the word for what it is.
EMPTY_ALT = re.compile(
    r"(?:[0-9a-f_./]{16,}|.*\.(?:png|svg|jpe?g|gif)|(?:image|figure|plot|picture|chart)\W*\d*)",
    re.IGNORECASE,
)
RESOURCES = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}
MATHJAX = "tex-svg.js"


@dataclass(frozen=True)
class Problem:
    """One thing wrong on one page: which check found it, and what it found."""

    page: str
    check: str
    what: str

    def __str__(self) -> str:
        return f"{self.page}: {self.check}: {self.what}"


class Page:
    """One HTML file of the site, parsed once."""

    def __init__(self, site: Path, file: Path) -> None:
        self.site = site
        self.file = file
        self.name = file.relative_to(site).as_posix()

    @cached_property
    def soup(self) -> BeautifulSoup:
        return BeautifulSoup(self.file.read_text(encoding="utf-8"), "html.parser")

    @cached_property
    def anchors(self) -> frozenset[str]:
        named = {str(tag["id"]) for tag in self.soup.find_all(id=True)}
        return frozenset(
            named | {str(tag["name"]) for tag in self.soup.find_all("a", attrs={"name": True})}
        )


def html_pages(site: Path) -> tuple[Path, ...]:
    """The pages of the site, the theme's own fragments under `_static` left out."""
    return tuple(p for p in sorted(site.rglob("*.html")) if "_static" not in p.parts)


def check(site: Path, private: tuple[str, ...] = ()) -> list[Problem]:
    """Everything wrong on the pages of `site` that can be read without a browser.

    private  words that may stand on no page, such as the path of the checkout
    """
    pages = {file: Page(site, file) for file in html_pages(site)}
    if not pages:
        return [Problem(str(site), "pages", "there is no page at all")]
    problems = []
    for page in pages.values():
        for name, test in (
            ("links", _links(page, pages)),
            ("off-site", _off_site(page)),
            ("alt text", _alt_text(page)),
            ("mathematics", _mathematics(page)),
            ("output", _outputs(page)),
            ("private", _private(page, private)),
            ("frame", site_frame.around(page.soup, page.file)),
            ("scripts", site_frame.scripts(page.soup)),
        ):
            problems += [Problem(page.name, name, what) for what in test]
    return problems + [Problem("404.html", "frame", what) for what in site_frame.doors(site)]


def _links(page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    """Links whose file or anchor is not there, and links that lead nowhere."""
    for tag in page.soup.find_all("a", href=True):
        address = urlsplit(str(tag["href"]))
        if address.scheme or address.netloc:
            if address.scheme in {"http", "https"} and not address.netloc:
                yield f"{tag['href']!r} names no host"
            continue
        path, anchor = unquote(address.path), unquote(address.fragment)
        if not path and not anchor:
            if tag["href"] != "#":  # which is the top of the page
                yield f"an empty link {tag.get_text(strip=True)[:40]!r}"
            continue
        target = (page.file.parent / path).resolve() if path else page.file
        if target.is_dir():
            target = target / "index.html"
        if not target.is_file():
            yield f"{tag['href']} leads to no file"
        elif anchor and target in pages and anchor not in pages[target].anchors:
            yield f"{tag['href']} leads to no such anchor"


def _off_site(page: Page) -> Iterator[str]:
    """Anything the page would fetch from another place than its own site."""
    for tag in page.soup.find_all([*RESOURCES, "link", "object", "embed"]):
        loads = tag.name != "link" or {"canonical", "edit"}.isdisjoint(tag.get("rel") or ())
        for name in (RESOURCES.get(tag.name, ""), "href", "data", "srcset"):
            value = str(tag.get(name) or "")
            if loads and re.match(r"(?:https?:)?//", value.strip()):
                yield f"<{tag.name}> loads {value}"
    for tag in page.soup.find_all(["style", "script"]):
        for match in re.finditer(
            r"(?:@import|url\()\s*['\"]?(https?://[^'\")\s]+)", tag.get_text()
        ):
            yield f"<{tag.name}> names {match[1]}"


def _alt_text(page: Page) -> Iterator[str]:
    """Pictures that say nothing to somebody who cannot see them."""
    for tag in page.soup.find_all("img"):
        if tag.get("role") == "presentation" or tag.get("aria-hidden") == "true":
            continue
        alt = tag.get("alt")
        shown = str(tag.get("src"))[:60]
        if alt is None or not str(alt).strip():
            yield f"{shown} has no alt text"
        elif EMPTY_ALT.fullmatch(str(alt).strip()) or len(str(alt).split()) < 3:
            yield f"{shown} has the alt text {alt!r}, which says nothing"
    for tag in page.soup.select(".cell_output svg"):
        if not (tag.get("aria-label") or tag.find("title") or tag.get("aria-hidden") == "true"):
            yield "an SVG in an output has neither a title nor an aria-label"


def _mathematics(page: Page) -> Iterator[str]:
    """MathJax on a page without formulas, or formulas without MathJax."""
    loads = any(MATHJAX in str(tag["src"]) for tag in page.soup.find_all("script", src=True))
    has = page.soup.find(class_="math") is not None
    if has and not loads:
        yield "has formulas and does not load MathJax"
    if loads and not has:
        yield "loads MathJax and has no formula"


def _outputs(page: Page) -> Iterator[str]:
    """Outputs that a reader should not see: errors, standard error, objects without a picture."""
    for tag in page.soup.select(".cell_output .stderr, .cell_output .traceback"):
        yield f"shows an error stream: {tag.get_text(strip=True)[:80]!r}"
    for tag in page.soup.select(".cell_output .output"):
        text = tag.get_text(strip=True)
        if re.fullmatch(r"<(?:[\w.]+ )?(?:object|Figure|Axes)[^>]*>", text):
            yield f"shows an object and not its content: {text[:80]!r}"
    for tag in page.soup.select(".cell.tag_injected-parameters"):
        yield f"shows the injected parameters: {tag.get_text(strip=True)[:60]!r}"


def _private(page: Page, words: tuple[str, ...]) -> Iterator[str]:
    """Paths of the machine that built the site."""
    text = page.file.read_text(encoding="utf-8")
    for word in (*words, sys.prefix, str(Path.home())):
        if len(word) > 4 and re.search(re.escape(word) + r"(?![\w-])", text):
            yield f"the path {word} stands on the page"
