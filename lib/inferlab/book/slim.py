"""Makes a built site light: what no page uses is not sent, and no script holds up the text.

The theme brings two thousand icons, as a script and as fonts, and the styles of every component it
knows. A book uses twenty of the icons and a third of the styles.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path

import tinycss2
from tinycss2 import ast as css

__all__ = ["coloured", "purge", "scripts", "slim", "words"]

ICONS = "fontawesome.js"  # the same icons once more, drawn by a script
SEARCH = {"searchtools.js", "language_data.js", "searchindex.js"}  # used by the page search alone
EARLY = (
    'document.documentElement.dataset.theme = localStorage.getItem("theme") || "auto";',
    '{ const on = document.documentElement.dataset, dark = "(prefers-color-scheme: dark)"; '
    'on.theme = on.mode !== "auto" ? on.mode : matchMedia(dark).matches ? "dark" : "light"; }',
)
GROUPS = {"media", "supports", "layer", "container"}
SCRIPT = re.compile(r"<script\b(?P<attributes>[^>]*)>(?P<text>.*?)</script>[ \t]*\n?", re.DOTALL)
SOURCE = re.compile(r"""\bsrc=["'](?P<address>[^"']+)["']""")
STYLE = re.compile(r"""(?<=href=["'])(?P<path>[^"'?:]+\.css)(?:\?[^"']*)?(?=["'])""")
ESCAPED = re.compile(r"\\([0-9a-fA-F]{4,6})")
TOGGLE = re.compile(r'(</a><details[^>]*>)<summary>(?=<span class="toctree-toggle)')
PRIVATE = re.compile("[\ue000-\uf8ff]")  # where fonts of icons keep their glyphs


def slim(site: Path) -> None:
    """Lighten the site in place: icons, styles, scripts; what a reader sees stays the same.

    A style goes when its selector names a class or an id that stands in no page and in no script.
    Every script of a page waits until its text is read; those of the search are in search.html.
    """
    pages = [p for p in sorted(site.rglob("*.html")) if "_static" not in p.parts]
    for page in pages:
        text = scripts(page.read_text(encoding="utf-8"), search=page.name == "search.html")
        page.write_text(named(coloured(text)), encoding="utf-8")
    for file in {*site.rglob(ICONS + "*"), *(site / "_static").rglob("*.map")}:
        file.unlink()
    used = words(file for suffix in ("html", "js") for file in site.rglob(f"*.{suffix}"))
    sheets = sorted((site / "_static").rglob("*.css"))
    for sheet in sheets:
        sheet.write_text(purge(sheet.read_text(encoding="utf-8"), used), encoding="utf-8")
    _fonts(site, sheets)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        text = STYLE.sub(lambda found, at=page: _stamped(at, found["path"]), text)
        page.write_text(text, encoding="utf-8")


def scripts(html: str, *, search: bool) -> str:
    """The page with each script deferred, and without those that it does not use.

    A line of code that speaks to a deferred script becomes a module: modules wait in the same row.
    """

    def one(found: re.Match) -> str:
        attributes, source = found["attributes"], SOURCE.search(found["attributes"])
        if source:
            name = source["address"].split("?")[0].rsplit("/", 1)[-1]
            if name == ICONS or (name in SEARCH and not search):
                return ""
            if not re.search(r"\b(?:defer|async|type)\b", attributes):
                return found[0].replace("<script", "<script defer", 1)
        elif found["text"].lstrip().startswith("DOCUMENTATION_OPTIONS."):
            return found[0].replace("<script", '<script type="module"', 1)
        return found[0]

    return SCRIPT.sub(one, html)


def coloured(html: str) -> str:
    """The page with a palette from its first moment. The theme sets one when its script has come,
    so without scripts there is none; here it is the light one, or what the reader's system asks.
    """
    html = html.replace('data-theme="auto"', 'data-theme="light"', 1)
    return html.replace(*EARLY)


def named(html: str) -> str:
    """The page with a name for what opens and shuts a part of the sidebar: the theme gives none."""
    return TOGGLE.sub(r'\1<summary aria-label="Pages of this part">', html)


def words(files: Iterable[Path]) -> frozenset[str]:
    """Every word in pages and scripts that could be the name of a class or an id.

    A word that ends with a dash counts as the beginning of names that a script puts together.
    """
    found: set[str] = set()
    for file in files:
        found.update(re.findall(r"[\w-]+", file.read_text(encoding="utf-8")))
    return frozenset(found)


def purge(sheet: str, used: frozenset[str]) -> str:
    """The style sheet without the selectors that name something not in `used`."""
    nodes = tinycss2.parse_stylesheet(sheet, skip_comments=True, skip_whitespace=True)
    return "\n".join(_kept(nodes, used, _beginnings(used)))


@cache
def _beginnings(used: frozenset[str]) -> tuple[str, ...]:
    return tuple(word for word in used if re.fullmatch(r"[a-z][\w-]+-", word))


def _kept(nodes: list, used: frozenset[str], begin: tuple[str, ...]) -> list[str]:
    """What stays of a list of rules, each as text."""
    kept = []
    for node in nodes:
        if isinstance(node, css.QualifiedRule):
            chosen = [s for s in _selectors(node.prelude) if _matches(s, used, begin)]
            if chosen:
                prelude = ",".join(tinycss2.serialize(s).strip() for s in chosen)
                kept.append(f"{prelude}{{{tinycss2.serialize(node.content)}}}")
        elif isinstance(node, css.AtRule) and node.content and node.lower_at_keyword in GROUPS:
            inner = tinycss2.parse_rule_list(node.content, skip_comments=True, skip_whitespace=True)
            rules = "".join(_kept(inner, used, begin))
            if rules:
                head = f"@{node.at_keyword}{tinycss2.serialize(node.prelude)}"
                kept.append(f"{head}{{{rules}}}")
        elif isinstance(node, css.ParseError):
            raise ValueError(f"a style sheet, line {node.source_line}: {node.message}")
        else:
            kept.append(node.serialize())
    return kept


def _selectors(prelude: list) -> list[list]:
    """A list of selectors, parted at its commas; commas within brackets are no such."""
    parts: list[list] = [[]]
    for token in prelude:
        if token == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _matches(selector: list, used: frozenset[str], begin: tuple[str, ...]) -> bool:
    """Whether every class and id that the selector asks for is used; what is in brackets is not
    asked for, since :not(.x) and :is(.x, .y) match without it.
    """
    names = [token.value for token in selector if isinstance(token, css.HashToken)]
    for dot, token in pairwise(selector):
        if dot == "." and isinstance(token, css.IdentToken):
            names.append(token.value)
    return all(name in used or name.startswith(begin) for name in names)


def _fonts(site: Path, sheets: list[Path]) -> None:
    """Cut each font of icons down to the glyphs that the style sheets name."""
    from fontTools import subset

    texts = {sheet: sheet.read_text(encoding="utf-8") for sheet in sheets}
    whole = "\n".join(texts.values())
    glyphs = {int(code, 16) for code in ESCAPED.findall(whole)}
    glyphs |= {ord(sign) for sign in PRIVATE.findall(whole)}
    for file in sorted((site / "_static").rglob("*.ttf")):
        options = subset.Options(layout_features=[], recalc_timestamp=False)
        font = subset.load_font(str(file), options)
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=glyphs)
        cutter.subset(font)
        subset.save_font(font, str(file), options)
        file.with_suffix(".woff2").unlink(missing_ok=True)
    for sheet, text in texts.items():
        one = re.sub(r"url\([^()]+\.woff2\)\s*format\(\"woff2\"\),\s*", "", text)
        if one != text:
            sheet.write_text(one, encoding="utf-8")


def _stamped(page: Path, path: str) -> str:
    """The address of a style sheet with its digest, so that no browser keeps an older one."""
    file = (page.parent / path).resolve()
    if not file.is_file():
        return path
    return f"{path}?v={hashlib.sha256(file.read_bytes()).hexdigest()[:8]}"
