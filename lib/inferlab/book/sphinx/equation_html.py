"""The equation reader as HTML: a formula whose parts name themselves, and tables of the parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from inferlab.book.sphinx.equation_math import Link, MathML, letter, unit_text
from inferlab.book.sphinx.equation_print import Latex, Words
from inferlab.theory.equations import Equation
from inferlab.theory.notation import ROLES, Symbol
from inferlab.theory.units import si

__all__ = ["notation_table", "parts_table", "reader", "role_of", "value_text"]

_TAG = re.compile(r"<[^>]*>|\s")
_LONG = 26  # letters of a formula from which it is set smaller on a phone


def reader(equation: Equation, link: Link, page: str = "", mark: str = "") -> str:
    """The formula, a line that names the part pointed at, and the formula in words.

    page  address of the equation's own page, where this is not it
    mark  name of a symbol to be set off
    """
    words = escape(Words().equation(equation))
    title = escape(equation.title)
    heading = f'<a href="{escape(page)}">{title}</a>' if page else ""
    head = f'<p class="eq-title">{heading}</p>' if heading else ""
    formula = MathML(link, mark).math(equation)
    long = " eq-long" * (len(_TAG.sub("", formula)) > _LONG)
    return (
        f'<equation-reader class="eq">{head}'
        f'<div class="eq-formula{long}" role="group" aria-label="{words}">{formula}</div>'
        '<p class="eq-say" aria-live="polite">Each part leads to its page.</p>'
        f'<details class="eq-words"><summary>In words, and as LaTeX</summary><p>{words}</p>'
        f"<pre>{escape(Latex().equation(equation))}</pre></details></equation-reader>"
    )


def parts_table(equation: Equation, link: Link) -> str:
    """Every symbol of the formula: letter, name, kind, unit, value in the computed example."""
    values = dict(equation.example) | {equation.result.name: equation.compute()}
    head = ("Part", "What it is", "Kind", "Value in the example", "Unit")
    rows = []
    for symbol in equation.symbols:
        written = "" if symbol.shown else " (not written)"
        value = _value(symbol, equation, values)
        cells = (
            f"{_name(symbol, link)}{written}",
            f'{escape(symbol.title)}<br><span class="eq-more">{escape(symbol.meaning)}</span>',
            escape(role_of(symbol, equation)),
            f'<span class="eq-value">{value}</span>',
            escape(unit_text(symbol.unit)),
        )
        rows.append((symbol.name, cells))
    caption = f"Computed example: {escape(equation.example_from)}."
    return _table(caption, head, rows)


def notation_table(symbols: Iterable[Symbol], link: Link, caption: str) -> str:
    """Letter, name, unit, kind and name in the code of many symbols."""
    head = ("Letter", "What it is", "Unit", "Kind", "In the code")
    rows = [
        (
            symbol.name,
            (
                _name(symbol, link),
                escape(symbol.title),
                escape(unit_text(symbol.unit)),
                escape(ROLES[symbol.role]),
                f"<code>{escape(symbol.name)}</code>",
            ),
        )
        for symbol in symbols
    ]
    return _table(escape(caption), head, rows)


def role_of(symbol: Symbol, equation: Equation | None = None) -> str:
    """What kind of quantity it is, in words; one that another formula computes says so."""
    if symbol.role == "result" and equation is not None and symbol is not equation.result:
        return "computed by another formula"
    return ROLES[symbol.role]


def value_text(value: Any, unit: str = "1") -> str:
    """A value as it is read: whole numbers as such, others to four digits, 7.0e13 as 70 T FLOP.

    Lists are written in full. `unit` decides whether a large number takes an SI prefix.
    """
    if isinstance(value, Sequence):
        return "(" + ", ".join(value_text(v) for v in value) + ")"
    if value == int(value) and abs(value) < 1e7:
        return f"{int(value):,}"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    if unit == "1" or abs(value) < 1e-3:
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return si(value, digits=4)


def _value(symbol: Symbol, equation: Equation, values: Mapping[str, Any]) -> str:
    if symbol.role == "constant":
        return value_text(symbol.value)
    if symbol.role == "size":
        return str(_length(symbol.name, equation))
    if symbol.name in values:
        return escape(value_text(values[symbol.name], symbol.unit))
    return "runs" if symbol.role == "index" else "—"


def _length(name: str, equation: Equation) -> int | str:
    for symbol in equation.inputs:
        inner = equation.example[symbol.name]
        for axis in symbol.axes:
            if axis == name:
                return len(inner)
            inner = inner[0]
    return "—"


def _name(symbol: Symbol, link: Link) -> str:
    address = link("symbol", symbol.name)
    shown = f'<span class="eq-letter">{letter(symbol)}</span>'
    if not address:
        return shown
    return f'<a href="{escape(address)}" aria-label="{escape(symbol.title)}">{shown}</a>'


def _table(caption: str, head: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr data-part="{escape(name)}"><th scope="row">{cells[0]}</th>'
        + "".join(
            f'<td data-head="{escape(title)}">{cell}</td>'
            for title, cell in zip(head[1:], cells[1:], strict=True)
        )
        + "</tr>"
        for name, cells in rows
    )
    return (
        f'<div class="eq-table"><table class="eq-parts"><caption>{caption}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )
