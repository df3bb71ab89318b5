"""The two pages that Sphinx does not write: the front door, and the one for an address that leads
nowhere. Each is whole in itself, since neither knows from where it is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["front", "lost", "write"]

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{head}
<style>
:root {{ color-scheme: light dark; }}
body {{ display: grid; font: 1.1rem/1.6 system-ui, sans-serif; margin: 0; min-height: 100vh;
  padding: 1.5rem; place-items: center; }}
h1 {{ font: 600 2rem/1.2 Georgia, serif; }}
a {{ color: #0b5394; }}
main {{ max-width: 34rem; }}
@media (prefers-color-scheme: dark) {{
  body {{ background: #121212; color: #ddd; }}
  a {{ color: #8ab4f8; }}
}}
</style>
</head>
<body><main>
{body}
</main></body>
</html>
"""


def write(site: Path, title: str, first: str, starts: Sequence[tuple[str, str]], base: str) -> None:
    """Write index.html, unless the first page of the book is that, and 404.html.

    first   the file of the first page; starts: (file, name) of pages that 404.html leads to
    base    the address of the site; "" where it is not known
    """
    if first != "index.html":
        (site / "index.html").write_text(front(title, first, base), encoding="utf-8")
    (site / "404.html").write_text(lost(title, first, starts, base), encoding="utf-8")


def front(title: str, first: str, base: str = "") -> str:
    """A page that leads on to the first one, with what other sites show of a link to it."""
    name, page, root = escape(title), escape(first), f"{base.rstrip('/')}/" if base else ""
    head = f"""<title>{name}</title>
<meta name="description" content="{name}">
<meta property="og:title" content="{name}">
<meta property="og:image" content="{escape(root)}_static/card.png">
<link rel="icon" href="data:,">
<link rel="canonical" href="{escape(root)}{page}">
<meta http-equiv="refresh" content="0; url={page}">"""
    return PAGE.format(
        head=head, body=f'<h1>{name}</h1>\n<p><a href="{page}">To the first page</a></p>'
    )


def lost(title: str, first: str, starts: Sequence[tuple[str, str]], base: str = "") -> str:
    """The page for an address that leads nowhere, which a server shows at that address.

    Its links start at the path of the site, so that they lead on from any depth: the path of
    `base`, or / where the address of the site is not known.
    """
    path = urlsplit(base).path.rstrip("/") + "/"
    links = "\n".join(f'<li><a href="{escape(p)}">{escape(name)}</a></li>' for p, name in starts)
    head = f"""<base href="{escape(path)}">
<title>Not found: {escape(title)}</title>
<link rel="icon" href="data:,">"""
    body = f"""<h1>There is no page at this address</h1>
<p>It may have moved. <a href="{escape(first)}">{escape(title)}</a> begins on its first page, and
<a href="search.html">the search</a> knows every word of it.</p>
<ul>
{links}
</ul>"""
    return PAGE.format(head=head, body=body)
