"""A formula as MathML in which every part is a link: to a symbol's page or to an operation's.

MathML is laid out by the browser itself, without a script. The links are HTML inside its text
elements, so each part can be reached with the mouse, with a finger and with the Tab key.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from inferlab.book.sphinx.equation_print import Printer
from inferlab.theory.notation import OPERATIONS, Symbol

__all__ = ["PLAIN_NUMBER", "Link", "MathML", "letter", "unit_text"]

# (kind, name) -> address of the page, or "" where there is none; kind: "symbol" or "operation".
Link = Callable[[str, str], str]

PLAIN_NUMBER = "a plain number"
_RELATIONS = {"≤": "≤", "<": "&lt;"}


def letter(symbol: Symbol) -> str:
    """The letter as HTML: italics for one letter, upright for several and for digits."""
    tag = "i" if len(symbol.letter) == 1 and not symbol.letter.isdigit() else "span"
    sub = f"<sub>{escape(symbol.sub)}</sub>" if symbol.sub else ""
    return f"<{tag}>{escape(symbol.letter)}</{tag}>{sub}"


def unit_text(unit: str) -> str:
    """A unit as a reader sees it: FLOP/(parameter·token); "a plain number" for 1."""
    if unit == "1":
        return PLAIN_NUMBER
    return unit.replace("*", "·").replace("second", "s").replace("1/", "per ")


class MathML(Printer):
    """MathML with a link for each part.

    link  gives the page of a part
    mark  name of a symbol that is set off, as on its own page
    """

    def __init__(self, link: Link, mark: str = "") -> None:
        self.link = link
        self.mark = mark

    def math(self, equation) -> str:
        """The whole formula as a <math> element."""
        return f'<math display="block" role="group">{self.equation(equation)}</math>'

    def equals(self, left, right):
        return f"<mrow>{left}<mo>=</mo>{right}</mrow>"

    def number(self, value):
        return f"<mn>{value}</mn>"

    def symbol(self, symbol):
        return self._symbol(symbol, letter(symbol))

    def negative(self, inner):
        return f"<mrow>{self._operation('subtraction', '−', 'mo')}{inner}</mrow>"

    def sign(self, name, left, right):
        sign = self._operation(name, OPERATIONS[name].sign, "mo")
        return f"<mrow>{left}{sign}{right}</mrow>"

    def product(self, factors):
        return "<mrow>" + '<mspace width="0.16em"></mspace>'.join(factors) + "</mrow>"

    def fraction(self, above, below):
        return f"<mfrac><mrow>{above}</mrow><mrow>{below}</mrow></mfrac>"

    def slash(self, above, below):
        sign = self._operation("division", "/", "mo", ' lspace="0.1em" rspace="0.1em"')
        return f"<mrow>{above}{sign}{below}</mrow>"

    def power(self, base, exponent):
        return f"<msup><mrow>{base}</mrow><mrow>{exponent}</mrow></msup>"

    def root(self, inner):
        return f"<msqrt>{inner}</msqrt>"

    def bracket(self, inner):
        return f'<mrow><mo fence="true">(</mo>{inner}<mo fence="true">)</mo></mrow>'

    def index(self, symbol, parts):
        below = "<mo>,</mo>".join(parts)
        return f"<msub>{self.symbol(symbol)}<mrow>{below}</mrow></msub>"

    def given(self, symbol, at, relation, seen):
        x = self.expression("sequence")
        seen = f"<mo>{_RELATIONS[relation]}</mo>{seen}"
        inner = (
            f'<msub>{x}<mrow>{at}</mrow></msub><mo lspace="0.25em" rspace="0.25em">|</mo>'
            f"<msub>{x}<mrow>{seen}</mrow></msub>"
        )
        return self._of(symbol, inner)

    def whole(self, symbol, of):
        return self._of(symbol, of)

    def over(self, name, index, low, high, body):
        sign = self._operation(name, OPERATIONS[name].sign, "mi", ' class="eq-big"')
        limits = f"<mrow>{index}<mo>=</mo>{low}</mrow><mrow>{high}</mrow>"
        gap = '<mspace width="0.16em"></mspace>'
        return f"<mrow><munderover>{sign}{limits}</munderover>{gap}{body}</mrow>"

    def function(self, name, args):
        sign = self._operation(name, OPERATIONS[name].sign, "mi")
        return f"<mrow>{sign}{self.bracket('<mo>,</mo>'.join(args))}</mrow>"

    def _of(self, symbol: Symbol, inner: str) -> str:
        """A letter and what it depends on, in brackets of one size."""
        left, right = (f'<mo fence="true" stretchy="false">{sign}</mo>' for sign in "()")
        return f"<mrow>{self.symbol(symbol)}{left}{inner}{right}</mrow>"

    def _symbol(self, symbol: Symbol, shown: str) -> str:
        mark = " eq-mark" if symbol.name == self.mark else ""
        unit = unit_text(symbol.unit)
        said = f"{symbol.plain}: {symbol.title}, {unit}"
        address = self.link("symbol", symbol.name)
        return f"<mi>{_part(symbol.name, shown, said, symbol.meaning, address, mark)}</mi>"

    def _operation(self, name: str, shown: str, tag: str, more: str = "") -> str:
        operation = OPERATIONS[name]
        address = self.link("operation", name)
        part = _part(name, shown, operation.title, operation.meaning, address, "")
        return f"<{tag}{more}>{part}</{tag}>"


def _part(name: str, shown: str, said: str, meaning: str, address: str, mark: str) -> str:
    about = (
        f'class="eq-part{mark}" data-part="{escape(name)}" aria-label="{escape(said)}" '
        f'title="{escape(f"{said}. {meaning}")}"'
    )
    if address:
        return f'<a {about} href="{escape(address)}">{shown}</a>'
    return f'<span {about} role="img" tabindex="0">{shown}</span>'
