"""What must stand around the text of every page of a built book: the times it takes, the way
deeper, what other sites show of it, scripts that wait. Read from the HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bs4 import BeautifulSoup

__all__ = ["around", "doors", "scripts"]

SHOWN = ("og:title", "og:description", "og:image", "og:type")


def around(soup: BeautifulSoup, file: Path) -> Iterator[str]:
    """What is missing around the text of a page; a page that is none of the book lacks nothing."""
    article = soup.select_one("article.bd-article > section")
    if article is None:
        return
    badges = [item.get_text(" ", strip=True) for item in article.select("ul.il-badges > li")]
    if not any(re.fullmatch(r"\d+ min to read", text) for text in badges):
        yield "does not say how long it takes to read"
    if article.select_one(".cell") and not any(" to run" in text for text in badges):
        yield "does not say how long it took to run"
    if soup.select_one("article.bd-article nav.il-deeper a[href]") is None:
        yield "does not lead one deeper"
    if soup.find("link", rel="icon") is None:
        yield "has no icon"
    shown = {str(tag.get("property")): str(tag.get("content")) for tag in soup.find_all("meta")}
    for name in SHOWN:
        if not shown.get(name, "").strip():
            yield f"tells other sites no {name}"
    card = shown.get("og:image", "")
    if card and "//" not in card and not (file.parent / card).is_file():
        yield f"names a picture that is not there: {card}"


def scripts(soup: BeautifulSoup) -> Iterator[str]:
    """Scripts that hold up the text: fetched, and neither deferred nor modules."""
    for tag in soup.find_all("script", src=True):
        if not (tag.has_attr("defer") or tag.has_attr("async") or tag.get("type") == "module"):
            yield f"{tag['src']} holds up the text"


def doors(site: Path) -> Iterator[str]:
    """What a site of many pages lacks for who comes by a wrong address."""
    if not (site / "search.html").is_file():
        return
    lost = site / "404.html"
    if not lost.is_file():
        yield "there is no 404.html"
    elif BeautifulSoup(lost.read_text(encoding="utf-8"), "html.parser").find("base") is None:
        yield "404.html has no base, so its links lead on from the top of the site alone"
