"""Prints a formula from its expression: as LaTeX, as words, and as MathML whose parts are links.

One walk over the syntax tree of the expression, in the order in which it was written; what is made
of each construct is up to the printer. Nothing is looked up in sympy, which reorders its terms.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from inferlab.theory.equations import Equation
from inferlab.theory.notation import SYMBOLS, Symbol

__all__ = ["Latex", "Printer", "Words"]

_SUM, _TERM, _POWER, _ATOM = range(4)
_LEVEL = {ast.Add: _SUM, ast.Sub: _SUM, ast.Mult: _TERM, ast.Div: _ATOM, ast.Pow: _POWER}
_OPERATIONS = {"Sum": "sum", "Product": "product-over"}
_FUNCTIONS = {"exp": "exponential", "log": "logarithm", "Max": "maximum"}


class Printer:
    """What all printers share: the walk, and where brackets are needed.

    A subclass says how a symbol, a sign, a fraction, a power, an index, a bracket and the like
    look; `sign` and `function` get names of `notation.OPERATIONS`.
    """

    def equation(self, equation: Equation) -> str:
        """Left-hand side, equals sign, right-hand side."""
        return self.equals(self.expression(equation.left), self.expression(equation.expression))

    def expression(self, text: str) -> str:
        """One expression."""
        return self._visit(ast.parse(text, mode="eval").body)

    def _visit(self, node: ast.expr, deep: bool = False) -> str:
        """`deep` inside a fraction, where a further one is written on one line."""
        match node:
            case ast.Constant(value=value):
                return self.number(value)
            case ast.Name(id=name):
                return self.symbol(SYMBOLS[name])
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self.negative(self._bracket(inner, _TERM, deep))
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return self._element(SYMBOLS[name], index)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._call(name, args, deep)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
                sign = "addition" if isinstance(op, ast.Add) else "subtraction"
                return self.sign(
                    sign, self._visit(left, deep), self._bracket(right, _SUM + 1, deep)
                )
            case ast.BinOp(op=ast.Mult()):
                return self._product(node, deep)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                if deep:
                    parts = (self._bracket(part, _POWER, deep) for part in (left, right))
                    return self.slash(*parts)
                return self.fraction(self._visit(left, True), self._visit(right, True))
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                base = self._bracket(left, _ATOM, deep, fraction=True)
                return self.power(base, self._visit(right, True))
        raise ValueError(f"{ast.unparse(node)} cannot be printed")

    def _bracket(self, node: ast.expr, level: int, deep: bool, fraction: bool = False) -> str:
        """The node, in brackets where it binds less than `level`."""
        inner = self._visit(node, deep)
        op = type(node.op) if isinstance(node, ast.BinOp) else None
        mine = _LEVEL[op] if op else _ATOM
        if isinstance(node, ast.UnaryOp) or (op is ast.Div and deep):
            mine = _TERM
        if isinstance(node, ast.Call) and node.func.id in _OPERATIONS:
            mine = _TERM
        if op is ast.Mult and len(factors := _factors(node)) == 1:
            return self._bracket(factors[0], level, deep, fraction)
        loose = mine < level or (fraction and op is ast.Div)
        return self.bracket(inner) if loose else inner

    def _product(self, node: ast.BinOp, deep: bool) -> str:
        factors = _factors(node)
        if len(factors) == 1:
            return self._visit(factors[0], deep)
        return self.product([self._bracket(f, _TERM, deep) for f in factors])

    def _element(self, symbol: Symbol, index: ast.expr) -> str:
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        if symbol.given:
            at = self._visit(parts[0])
            if isinstance(parts[0], ast.Name) and SYMBOLS[parts[0].id].role != "index":
                return self.whole(symbol, at)
            if isinstance(parts[0], ast.BinOp):  # t + 1, given all up to t
                return self.given(symbol, at, "≤", self._visit(parts[0].left))
            return self.given(symbol, at, "<", at)
        return self.index(symbol, [self._visit(part) for part in parts])

    def _call(self, name: str, args: Sequence[ast.expr], deep: bool) -> str:
        if name == "sqrt":
            return self.root(self._visit(args[0], True))
        if name in _OPERATIONS:
            index, low, high = (self._visit(part) for part in args[1].elts)
            body = self._bracket(args[0], _TERM, deep)
            return self.over(_OPERATIONS[name], index, low, high, body)
        return self.function(_FUNCTIONS[name], [self._visit(arg, deep) for arg in args])


def _factors(node: ast.expr) -> list[ast.expr]:
    """The factors of a product in order; constants that are not written are left out."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _factors(node.left) + _factors(node.right)
    hidden = isinstance(node, ast.Name) and not SYMBOLS[node.id].shown
    return [] if hidden else [node]


class Latex(Printer):
    """LaTeX, as one would type it."""

    SIGNS = {"addition": "+", "subtraction": "-", "sum": r"\sum", "product-over": r"\prod"}
    NAMES = {"exponential": r"\exp", "logarithm": r"\ln", "maximum": r"\max"}
    CONDITIONS = {"≤": r"\le ", "<": "< "}

    def equals(self, left, right):
        return f"{left} = {right}"

    def number(self, value):
        return str(value)

    def symbol(self, symbol):
        return symbol.latex

    def negative(self, inner):
        return f"-{inner}"

    def sign(self, name, left, right):
        return f"{left} {self.SIGNS[name]} {right}"

    def product(self, factors):
        return r"\,".join(factors)

    def fraction(self, above, below):
        return rf"\frac{{{above}}}{{{below}}}"

    def slash(self, above, below):
        return f"{above} / {below}"

    def power(self, base, exponent):
        return f"{base}^{{{exponent}}}"

    def root(self, inner):
        return rf"\sqrt{{{inner}}}"

    def bracket(self, inner):
        return rf"\left({inner}\right)"

    def index(self, symbol, parts):
        return f"{symbol.latex}_{{{', '.join(parts)}}}"

    def given(self, symbol, at, relation, seen):
        x = symbol.given
        condition = f"{self.CONDITIONS[relation]}{seen}"
        return rf"{symbol.latex}({x}_{{{at}}} \mid {x}_{{{condition}}})"

    def whole(self, symbol, of):
        return f"{symbol.latex}({of})"

    def over(self, name, index, low, high, body):
        return rf"{self.SIGNS[name]}_{{{index} = {low}}}^{{{high}}} {body}"

    def function(self, name, args):
        return f"{self.NAMES[name]}{self.bracket(', '.join(args))}"


class Words(Printer):
    """A sentence that can be read aloud: each letter named where it first stands, brackets said."""

    SIGNS = {"addition": "plus", "subtraction": "minus"}
    NAMES = {
        "exponential": "the exponential of",
        "logarithm": "the natural logarithm of",
        "maximum": "the larger of",
        "sum": "the sum",
        "product-over": "the product",
    }

    def __init__(self):
        self.said: set[str] = set()  # symbols already called by their name

    def equals(self, left, right):
        return f"{left} equals {right}"

    def number(self, value):
        return str(value)

    def symbol(self, symbol):
        return self._named(symbol, symbol.plain)

    def negative(self, inner):
        return f"minus {inner}"

    def sign(self, name, left, right):
        return f"{left} {self.SIGNS[name]} {right}"

    def product(self, factors):
        return " times ".join(factors)

    def fraction(self, above, below):
        return f"the fraction with {above} above and {below} below, end of fraction,"

    def slash(self, above, below):
        return f"{above} divided by {below}"

    def power(self, base, exponent):
        return f"{base} to the power of {exponent}"

    def root(self, inner):
        return f"the square root of {inner}"

    def bracket(self, inner):
        return f"bracket, {inner} end of bracket,"

    def index(self, symbol, parts):
        return self._named(symbol, f"{symbol.plain} {' '.join(parts)}")

    def given(self, symbol, at, relation, seen):
        until = "up to" if relation == "≤" else "before"
        x = symbol.given
        return f"the probability p of {x} at {at}, given {x} {until} {seen},"

    def whole(self, symbol, of):
        return self._named(symbol, f"{symbol.plain} of {of.split(',')[0]}")

    def over(self, name, index, low, high, body):
        return f"{self.NAMES[name]} over {index} from {low} to {high} of {body}"

    def function(self, name, args):
        return f"{self.NAMES[name]} {self.bracket(' and '.join(args))}"

    def equation(self, equation):
        self.said.clear()
        return _tidy(super().equation(equation))

    def _named(self, symbol, how):
        """The symbol, followed by what it is called unless that was said before or is the same."""
        new = symbol.name not in self.said and symbol.title != symbol.plain
        self.said.add(symbol.name)
        if symbol.role == "index" or not new:
            return how
        return f"{how} ({symbol.title})" if symbol.role == "constant" else f"{how}, {symbol.title},"


def _tidy(text: str) -> str:
    """Commas where a reader pauses: none doubled, none before a closing one, a full stop last."""
    while ",," in text or ", ," in text:
        text = text.replace(", ,", ",").replace(",,", ",")
    return text.rstrip(" ,") + "."
