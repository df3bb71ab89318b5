"""Writes the pages of the equations, symbols and operations as Markdown among the sources.

They are made at build time from what is attached to the functions, so they cannot say anything
else than the code. `generate` is called once the sources are gathered.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from inferlab import data
from inferlab.book.sphinx.equation_html import role_of, value_text
from inferlab.book.sphinx.equation_math import PLAIN_NUMBER, unit_text
from inferlab.theory import formulas
from inferlab.theory.equations import Equation, collect, names_in
from inferlab.theory.notation import CITATIONS, OPERATIONS, SYMBOLS, WORDS, Operation, Symbol
from inferlab.theory.notation.terms import Passage

__all__ = ["FOLDER", "INDEX", "generate", "glossary", "page_of"]

FOLDER = "chapters/04_math/equations"
INDEX = f"{FOLDER}/index"
_KINDS = {"equation": "", "symbol": "symbols/", "operation": "operations/"}
_ORPHAN = "---\norphan: true\n---\n"
_CALLS = {
    "Sum(": "sum", "Product(": "product-over", "exp(": "exponential", "log(": "logarithm",
    "sqrt(": "square-root", "Max(": "maximum", "**": "power", "/": "division", "+": "addition",
    "-": "subtraction",
}  # fmt: skip


def page_of(kind: str, name: str) -> str:
    """The page of an "equation", "symbol" or "operation", without suffix."""
    return f"{FOLDER}/{_KINDS[kind]}{name.replace('_', '-')}"


def generate(source: Path) -> bool:
    """Write the pages into the gathered sources and list the equations under their index.

    Returns False, and does nothing, for a book whose table of contents has no such index.
    """
    toc_file = source / "_toc.yml"
    toc = yaml.safe_load(toc_file.read_text(encoding="utf-8"))
    entry = _entry(toc, INDEX)
    if entry is None:
        return False
    found = collect(formulas.MODULES)
    entry["sections"] = [{"file": page_of("equation", e.id)} for e in found]
    toc_file.write_text(yaml.safe_dump(toc, sort_keys=False, allow_unicode=True), "utf-8")
    claims = _Claims()
    for e in found:
        _write(source, page_of("equation", e.id), _equation_page(e, claims))
    for symbol in SYMBOLS.values():
        _write(source, page_of("symbol", symbol.name), _symbol_page(symbol, found, claims))
    for operation in OPERATIONS.values():
        _write(source, page_of("operation", operation.name), _operation_page(operation, found))
    # What the directives print is not in the pages: the book is built anew when it changes.
    (source / "_equations.json").write_text(_fingerprint(found), encoding="utf-8")
    return True


def glossary(linked: bool) -> str:
    """Markdown of Sphinx's glossary: every quantity and every word of the field.

    linked  whether the pages of the symbols are in the book
    """
    entries = []
    for symbol in SYMBOLS.values():
        if symbol.role in ("index", "size") or not symbol.shown:
            continue
        names = [symbol.title]
        if len(symbol.letter) > 1 and not symbol.sub and symbol.letter != symbol.title:
            names += [symbol.letter] if not symbol.letter.isdigit() else []
        unit = unit_text(symbol.unit)
        more = f" Written {_letter(symbol)}; {unit if unit == PLAIN_NUMBER else f'in {unit}'}."
        more += f" [More](/{page_of('symbol', symbol.name)}.md)." if linked else ""
        entries.append("\n".join([*names, f"  {symbol.meaning}{more}"]))
    for word in WORDS:
        see = [
            f"[{SYMBOLS[name].title}](/{page_of('symbol', name)}.md)" for name in word.see if linked
        ]
        more = f" See {', '.join(see)}." if see else ""
        entries.append(f"{word.word}\n  {word.meaning}{more}")
    return "```{glossary}\n:sorted:\n\n" + "\n\n".join(entries) + "\n```\n"


class _Claims:
    """The claims of data/claims.yml and the titles of the sources that make them."""

    def __init__(self) -> None:
        text = yaml.safe_load(data.path("claims.yml").read_text(encoding="utf-8"))
        self.titles = {key: value["title"] for key, value in text["sources"].items()}
        self.entries = {claim["id"]: claim for claim in text["claims"]}

    def sentence(self, id: str) -> str:
        """What the claim states, what the book states instead, and the sign with its verdict."""
        claim = self.entries[id]
        text = f"The source states: {_plain(claim['says'])}"
        if claim.get("we_say"):
            text += f" The book states instead: {_plain(claim['we_say'])}"
        return f"{text} {{claim}}`{id}`\n"


def _equation_page(equation: Equation, claims: _Claims) -> str:
    sections = [
        f"# {equation.title}\n",
        f"{equation.result.meaning}\n",
        f"```{{equation-reader}} {equation.id}\n:page:\n```\n",
        "## Part by part\n",
        f"```{{equation-parts}} {equation.id}\n```\n",
        _operations_line(equation),
        _in_code(equation),
        "## How to interpret it\n",
        f"{equation.reading}\n",
        "## What it assumes\n",
        _bullets(equation.assumptions),
        "## What the sources say around it\n",
        _passages(equation.passages, claims)
        or "Neither of the two texts that this book follows states it.\n",
        "## What supports it\n",
        _citations(equation.cites) or "It follows from the definitions of its parts.\n",
        "## The claim that tests it\n",
        claims.sentence(equation.claim)
        if equation.claim
        else "No claim of the two texts rests on it.\n",
        "Back to [all equations](index.md).\n",
    ]
    return "\n".join(sections)


def _in_code(equation: Equation) -> str:
    """The call that computes the example, where its values are single numbers."""
    name, unit = equation.function.__name__, unit_text(equation.result.unit)
    shown = value_text(equation.compute(), equation.result.unit)
    shown += "" if unit == PLAIN_NUMBER else f" {unit}"
    if any(symbol.axes for symbol in equation.inputs):
        return f"In the code it is `inferlab.theory.formulas.{name}`; the example gives {shown}.\n"
    values = "".join(f"    {key}={value:.12g},\n" for key, value in equation.example.items())
    return (
        "In the code it is this function, here with the values of the example:\n\n```python\n"
        f"from inferlab.theory import formulas\n\nformulas.{name}(\n{values})  # {shown}\n```\n"
    )


def _symbol_page(symbol: Symbol, found: Iterable[Equation], claims: _Claims) -> str:
    where = [e for e in found if symbol in e.symbols]
    computed = [e for e in where if e.result is symbol]
    facts = [
        f"Written: {_letter(symbol)}" + ("" if symbol.shown else " (a factor 1, not written)"),
        f"Unit: {unit_text(symbol.unit)}" + (", each element" if symbol.axes else ""),
        f"Kind: {role_of(symbol)}",
        *([f"Value: {symbol.value:g}"] if symbol.value is not None else []),
        *([f"Where its value comes from: {symbol.origin}"] if symbol.origin else []),
        *(f"Computed by: [{e.title}](../{e.id}.md)" for e in computed),
        f"In the code: `{symbol.name}`",
    ]
    parts = [
        _ORPHAN,
        f"# {symbol.title[0].upper()}{symbol.title[1:]}: {_letter(symbol)}\n",
        f"{symbol.meaning}\n",
        _bullets(facts),
        *(["## Background\n", f"{symbol.about}\n"] if symbol.about else []),
        "## Where it occurs\n",
        *(f"```{{equation-reader}} {e.id}\n:mark: {symbol.name}\n```\n" for e in where),
    ]
    if symbol.passage:
        parts += ["## What the source says\n", _passages((symbol.passage,), claims)]
    if symbol.cites:
        parts += ["## Sources\n", _citations(symbol.cites)]
    return "\n".join([*parts, _BACK])


def _operation_page(operation: Operation, found: Iterable[Equation]) -> str:
    where = [e for e in found if operation.name in _operations(e)]
    parts = [
        _ORPHAN,
        f"# {operation.title.capitalize()}: {operation.sign}\n",
        f"{operation.meaning}\n",
        "## What it does to units\n",
        f"{operation.units}\n",
        *(["## How to read it\n", f"{operation.about}\n"] if operation.about else []),
        "## Where it occurs\n",
        _bullets(f"[{e.title}](../{e.id}.md)" for e in where),
    ]
    return "\n".join([*parts, _BACK])


def _operations_line(equation: Equation) -> str:
    """Links to the operations, of which a product and a line of division have no sign to touch."""
    links = [
        f"[{OPERATIONS[name].title}](operations/{name}.md)"
        for name in OPERATIONS
        if name in _operations(equation)
    ]
    return f"Operations in it: {', '.join(links)}.\n"


_BACK = "Back to [all equations](../index.md).\n"


def _operations(equation: Equation) -> set[str]:
    """The operations of an equation, by name."""
    text = equation.expression
    found = {name for sign, name in _CALLS.items() if sign in text}
    return found | ({"product"} if "*" in text.replace("**", "") else set())


def _letter(symbol: Symbol) -> str:
    """The letter in Markdown: C with a subscript, italics where it is one letter."""
    text = symbol.letter
    base = f"*{text}*" if len(text) == 1 and not text.isdigit() else text
    return f"{base}{{sub}}`{symbol.sub}`" if symbol.sub else base


def _passages(passages: Iterable[Passage], claims: _Claims) -> str:
    return _bullets(
        f"*{claims.titles[p.file]}* (source {p.file}), section “{p.section}”, in our words: "
        f"{p.says}"
        for p in passages
    )


def _citations(keys: Iterable[str]) -> str:
    return _bullets(
        f"[{CITATIONS[key].text}]({CITATIONS[key].url}): {CITATIONS[key].shows}." for key in keys
    )


def _plain(text: str) -> str:
    """A text of data/claims.yml on one line."""
    return " ".join(text.split())


def _bullets(items: Iterable[str]) -> str:
    lines = [f"- {item}" for item in items]
    return "\n".join(lines) + "\n" if lines else ""


def _write(source: Path, page: str, text: str) -> None:
    file = source / f"{page}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _entry(node: Any, file: str) -> dict | None:
    """The entry of a table of contents that names this file."""
    if isinstance(node, dict) and node.get("file") == file:
        return node
    inner: Iterator[Any] = iter(())
    if isinstance(node, dict):
        inner = iter(node.values())
    elif isinstance(node, list):
        inner = iter(node)
    return next((hit for one in inner if (hit := _entry(one, file)) is not None), None)


def _fingerprint(found: Iterable[Equation]) -> str:
    """All that the directives print, as text."""
    equations = [
        {
            field.name: str(getattr(e, field.name))
            for field in dataclasses.fields(e)
            if field.name != "function"
        }
        | {"value": str(e.compute()), "names": names_in(e.expression)}
        for e in found
    ]
    symbols = [dataclasses.asdict(s) for s in SYMBOLS.values()]
    operations = [dataclasses.asdict(o) for o in OPERATIONS.values()]
    return json.dumps([equations, symbols, operations], ensure_ascii=False, indent=1)
