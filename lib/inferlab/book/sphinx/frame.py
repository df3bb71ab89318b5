"""What stands around the text of every page: its depth, how long it takes to read and to run, the
way one depth down, and what a site that links to the page shows of it.
"""

from __future__ import annotations

import json
import math
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes

from inferlab.book.depths import deeper, depth_of
from inferlab.book.pages import pages

__all__ = ["CARD", "description", "listed", "minutes", "setup"]

WORDS_PER_MINUTE = 238
"""Silent reading of English non-fiction, mean of the studies reviewed by Brysbaert (2019), Journal
of Memory and Language 109, 104047."""

CARD = "_static/card.png"


def setup(app: Any) -> None:
    """Frame every page that is written from a document."""
    app.connect("html-page-context", _frame, priority=900)


def listed(source: Path) -> list[str]:
    """The documents of the book in reading order; none where the sources have no `_toc.yml`."""
    if not (source / "_toc.yml").is_file():
        return []
    return [page.with_suffix("").as_posix() for page in pages(source)]


def minutes(doctree: nodes.document) -> int:
    """Time to read a page, whole minutes: its words, code and tables with them, at 238 a minute."""
    words = 0
    for text in doctree.findall(nodes.Text):
        if not any(_apart(parent) for parent in _ancestors(text)):
            words += len(text.astext().split())
    return max(1, math.ceil(words / WORDS_PER_MINUTE))


def description(doctree: nodes.document, length: int = 200) -> str:
    """The first paragraph of a page, cut at a word."""
    first = next(iter(doctree.findall(nodes.paragraph)), None)
    text = " ".join(first.astext().split()) if first is not None else ""
    return text if len(text) <= length else text[:length].rsplit(" ", 1)[0] + " …"


def _frame(app: Any, page: str, template: str, context: dict, doctree: Any) -> None:
    if doctree is None or "body" not in context:
        return
    order = listed(Path(app.srcdir))
    if not order:
        return
    head, end, rest = context["body"].partition("</h1>")
    if end:
        context["body"] = head + end + _badges(app, page, doctree) + rest + _foot(app, page, order)
    context["metatags"] = context.get("metatags", "") + _meta(app, page, doctree)


def _badges(app: Any, page: str, doctree: nodes.document) -> str:
    """The depth of the page and the two times, the second measured when it was executed."""
    depth = depth_of(page)
    shown = [f"Depth {escape(depth.title)}"] if depth else []
    shown.append(f"{minutes(doctree)} min to read")
    ran = _execution(Path(app.srcdir) / f"{page}.ipynb")
    if ran and "seconds" in ran:
        where = f" on {escape(ran['machine'])}" if ran.get("machine") else ""
        shown.append(f"{_duration(ran['seconds'])} to run{where}")
    items = "".join(f"<li>{text}</li>" for text in shown)
    return f'<ul class="il-badges" aria-label="About this page">{items}</ul>'


def _foot(app: Any, page: str, order: list[str]) -> str:
    """The link one depth down, and below the last depth the one back to all of them."""
    target, address = deeper(page, order), app.builder.get_relative_uri
    if target:
        depth, title = depth_of(target), app.env.titles[target].astext()
        here = depth_of(page)
        name = "Go one deeper" if here else "Start at the first depth"
        if here and depth.number > here.number + 1:
            name = "Go deeper"  # those between are not written
        link, about = address(page, target), f"{depth.title}: {title}"
    else:
        link, name, about = address(page, order[0]), "This is the last depth", "Choose another"
    return (
        f'<nav class="il-deeper" aria-label="{name}"><a href="{link or "#"}">'
        f'<span class="il-deeper-name">{name}</span> <span>{escape(about)}</span></a></nav>'
    )


def _meta(app: Any, page: str, doctree: nodes.document) -> str:
    """Open Graph: title, first paragraph, card. Addresses are whole where the site's is known."""
    base = app.config.html_baseurl
    top = f"{base.rstrip('/')}/" if base else "../" * page.count("/")
    title = app.env.titles[page].astext()
    text = description(doctree) or title
    book = app.config.html_title
    properties = {
        "og:type": "article",
        "og:site_name": book,
        "og:title": title,
        "og:description": text,
        "og:image": top + CARD,
        "og:image:width": "1200",
        "og:image:height": "630",
        "og:image:alt": f"{book}: two bars of time, of reading a prompt and of writing an answer",
    }
    if base:
        properties["og:url"] = top + app.builder.get_target_uri(page)
    tags = [f'<meta property="{k}" content="{escape(v)}" />' for k, v in properties.items()]
    tags.append(f'<meta name="description" content="{escape(text)}" />')
    tags.append('<meta name="twitter:card" content="summary_large_image" />')
    return "\n" + "\n".join(tags) + "\n"


def _execution(notebook: Path) -> dict[str, Any]:
    """What `inferlab run` wrote into an executed notebook about the run."""
    if not notebook.is_file():
        return {}
    return json.loads(notebook.read_text(encoding="utf-8"))["metadata"].get("inferlab", {})


def _duration(seconds: float) -> str:
    """A time as a reader plans with it: 8 s, 45 s, 3 min."""
    return f"{max(1, round(seconds))} s" if seconds < 100 else f"{round(seconds / 60)} min"


def _ancestors(node: nodes.Node) -> Any:
    while node.parent is not None:
        node = node.parent
        yield node


def _apart(node: nodes.Node) -> bool:
    """What is not read from start to end: raw HTML, folded cells, comments."""
    if isinstance(node, (nodes.raw, nodes.comment)):
        return True
    hidden = {"tag_hide-input", "tag_hide-output", "tag_hide-cell", "tag_remove-cell"}
    return not hidden.isdisjoint(getattr(node, "attributes", {}).get("classes", ()))
