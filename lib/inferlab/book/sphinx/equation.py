"""Directives and roles of the equation reader; `equation_pages` writes the pages they lead to.

{equation-reader} ID shows a formula whose parts name themselves and lead to their pages; {sym}`P`
in a sentence does the same for one letter. Script and style go to the pages that use them alone.
"""

from __future__ import annotations

import functools
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from inferlab.book.sphinx import equation_html as html
from inferlab.book.sphinx.equation_math import Link, letter, unit_text
from inferlab.book.sphinx.equation_pages import FOLDER, INDEX, glossary, page_of
from inferlab.theory import formulas
from inferlab.theory.equations import Equation, collect
from inferlab.theory.notation import SYMBOLS, Symbol, language, machine, money, serving, work

__all__ = ["equations", "find_symbol", "setup"]

GROUPS = {m.__name__.rsplit(".", 1)[1]: m for m in (language, work, machine, serving, money)}
LISTS = {m.__name__.rsplit(".", 1)[1]: m for m in formulas.MODULES}
LOG = logging.getLogger(__name__)


@functools.cache
def equations() -> dict[str, Equation]:
    """Every equation of the book by its id."""
    return {e.id: e for e in collect(formulas.MODULES)}


def find_symbol(text: str) -> Symbol:
    """A symbol by its name in the code, or by a letter that only one symbol has.

    Raises ValueError for what is neither, and names the symbols that a letter may mean.
    """
    if text in SYMBOLS:
        return SYMBOLS[text]
    alike = [s for s in SYMBOLS.values() if text in (s.letter if not s.sub else "", s.plain)]
    if len(alike) == 1:
        return alike[0]
    if alike:
        names = ", ".join(f"{s.name} ({s.title})" for s in alike)
        raise ValueError(f"the letter {text!r} stands for several symbols: write one of {names}")
    raise ValueError(f"no symbol is called {text!r}: the names are in inferlab.theory.notation")


class Shown(nodes.raw):
    """Raw HTML that can be told from other raw HTML, so that its page gets script and style."""


class _Directive(SphinxDirective):
    """What the directives share: the address of a page, an equation by its id."""

    def show(self, text: str) -> list[nodes.Node]:
        return [Shown("", text, format="html")]

    def known(self, table: dict[str, Any]) -> Any:
        name = self.arguments[0]
        if name not in table:
            LOG.warning(
                "%s: no %r, there are %s", self.name, name, ", ".join(table),
                location=self.get_location(),
            )  # fmt: skip
        return table.get(name)


class EquationReader(_Directive):
    """One formula. :page: on its own page; :mark: names a symbol to be set off."""

    required_arguments = 1
    option_spec = {"page": directives.flag, "mark": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        equation = self.known(equations())
        if equation is None:
            return []
        link = _link(self.env)
        page = "" if "page" in self.options else link("equation", equation.id)
        return self.show(html.reader(equation, link, page, self.options.get("mark", "")))


class EquationParts(_Directive):
    """The table of the parts of a formula, with the computed example."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        equation = self.known(equations())
        return self.show(html.parts_table(equation, _link(self.env))) if equation else []


class EquationList(_Directive):
    """The formulas of one module of `theory.formulas`, each to be read and to be opened."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module = self.known(LISTS)
        link = _link(self.env)
        shown = [
            html.reader(e, link, link("equation", e.id))
            for e in collect([module] if module else [])
        ]
        return self.show("".join(shown))


class NotationTable(_Directive):
    """The symbols of one module of `theory.notation` in a table; the argument is its name."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        module = self.known(GROUPS)
        if module is None:
            return []
        caption = " ".join(self.content)
        shown = [s for s in module.SYMBOLS.values() if s.shown]
        return self.show(html.notation_table(shown, _link(self.env), caption))


class GlossaryTerms(SphinxDirective):
    """Every quantity and every word as entries of Sphinx's glossary, so that {term} finds them."""

    def run(self) -> list[nodes.Node]:
        linked = bool(_link(self.env)("symbol", next(iter(SYMBOLS))))
        holder = nodes.container()
        lines = glossary(linked).splitlines()
        self.state.nested_parse(StringList(lines, source="glossary"), self.content_offset, holder)
        return holder.children


class Sym(SphinxRole):
    """{sym}`P`: the letter, with its name on hover, leading to its page."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        try:
            symbol = find_symbol(self.text.strip())
        except ValueError as fault:
            LOG.warning("{sym}: %s", fault, location=self.get_location())
            return [nodes.Text(self.text)], []
        said = escape(f"{symbol.title}, {unit_text(symbol.unit)}")
        address = _link(self.env)("symbol", symbol.name)
        shown = f'<span class="eq-letter">{letter(symbol)}</span>'
        text = f'<span class="eq-sym" title="{said}">{shown}</span>'
        if address:
            about = f'class="eq-sym" title="{said}" aria-label="{escape(symbol.plain)}: {said}"'
            text = f'<a {about} href="{escape(address)}">{shown}</a>'
        return [Shown("", text, format="html")], []


def setup(app: Any) -> None:
    """Register directives, roles, the node and where script and style are."""
    for name, directive in (
        ("equation-reader", EquationReader),
        ("equation-parts", EquationParts),
        ("equation-list", EquationList),
        ("notation-table", NotationTable),
        ("glossary-terms", GlossaryTerms),
    ):
        app.add_directive(name, directive)
    app.add_role("sym", Sym())
    app.add_node(Shown, html=(_visit, None))
    app.connect("config-inited", _keep_parts, priority=950)  # after the table of contents is read
    app.connect("builder-inited", _static)
    app.connect("html-page-context", _assets)
    app.connect("html-page-context", _pass_by)


def _link(env: Any) -> Link:
    """Addresses relative to the page that is being read; "" for pages that are not in the book."""

    def link(kind: str, name: str) -> str:
        target = page_of(kind, name)
        if target not in env.found_docs:
            return ""
        if target == env.docname:
            return ""  # the page itself
        return env.app.builder.get_relative_uri(env.docname, target)

    return link


def _keep_parts(app: Any, config: Any) -> None:
    """Pages of symbols and operations are not in the table of contents, which would be a hundred
    lines longer; they are in the book all the same.
    """
    folders = (f"{FOLDER}/symbols/", f"{FOLDER}/operations/")
    config.exclude_patterns = [p for p in config.exclude_patterns if not p.startswith(folders)]


def _visit(writer: Any, node: nodes.Node) -> None:
    writer.body.append(node.astext())
    raise nodes.SkipNode


def _static(app: Any) -> None:
    static = str(Path(__file__).parent / "static")
    if static not in app.config.html_static_path:
        app.config.html_static_path.append(static)


def _assets(app: Any, page: str, template: str, context: dict, doctree: Any) -> None:
    if doctree is not None and next(doctree.findall(Shown), None) is not None:
        app.add_css_file("equation.css")
        app.add_js_file("equation.js", loading_method="defer")


def _pass_by(app: Any, page: str, template: str, context: dict, doctree: Any) -> None:
    """Who reads on from the list of equations comes to the page after them, and back likewise."""
    last = page_of("equation", list(equations())[-1])
    after = app.builder.relations.get(last, (None, None, None))[2]
    for here, way, there in ((INDEX, "next", after), (after, "prev", INDEX)):
        if page == here and last in app.env.found_docs:
            context[way] = there and {
                "link": app.builder.get_relative_uri(page, there),
                "title": app.builder.render_partial(app.env.titles[there])["title"],
            }
