"""Whether an equation is right: its expression against its function, and its units.

Both read the one expression that is attached to the function. sympy evaluates it; the units are
those of a pint registry of our own, in which FLOP, byte, token, parameter, dollar, step and the
like are base units. Stock pint takes what it does not know for a plain number, and adds a byte to a
pass.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any

from inferlab.theory.equations import FUNCTIONS, Equation
from inferlab.theory.notation import SYMBOLS

__all__ = ["UnitMismatch", "evaluate", "registry", "unit_of", "units_fault"]

BASE_UNITS = (
    "FLOP", "byte", "token", "parameter", "dollar", "second", "step", "request", "layer", "head",
    "vector", "element", "expert", "sequence", "machine", "round",
)  # fmt: skip
DERIVED_UNITS = (
    "MAC = 2 * FLOP",
    "bit = byte / 8",
    "kB = 1000 * byte",
    "GB = 1000000000 * byte",
    "GiB = 1073741824 * byte",
    "hour = 3600 * second",
)


class UnitMismatch(ValueError):
    """Two units that must be one; the message names both and where they meet."""


@functools.cache
def registry() -> Any:
    """The book's units: the base units above and what is made of them, and nothing else."""
    import pint

    units = pint.UnitRegistry(None)
    for name in BASE_UNITS:
        units.define(f"{name} = [{name}]")
    for line in DERIVED_UNITS:
        units.define(line)
    return units


def units_fault(equation: Equation, units: Mapping[str, str] | None = None) -> str:
    """What is wrong with the units of an equation, in a sentence; "" where nothing is.

    units  other units for some symbols, by name: how a test plants an error
    """
    stated = {s.name: s.unit for s in equation.symbols} | dict(units or {})
    try:
        found = unit_of(equation.expression, stated)
        _same(_unit(stated[equation.result.name]), found, "the left and the right-hand side")
    except UnitMismatch as fault:
        return f"{equation.id}: {fault}"
    return ""


def unit_of(expression: str, units: Mapping[str, str]) -> Any:
    """The unit of an expression, from those of its names.

    Raises UnitMismatch where two units meet that are not the same to the last factor, and where
    something other than a plain number stands in an exponent, a logarithm or an index.
    """
    return _walk(ast.parse(expression, mode="eval").body, units)


def _walk(node: ast.expr, units: Mapping[str, str]) -> Any:
    match node:
        case ast.Constant():
            return _unit("1")
        case ast.Name(id=name):
            return _unit(units[name])
        case ast.UnaryOp(operand=inner):
            return _walk(inner, units)
        case ast.Subscript(value=inner, slice=index):
            for one in index.elts if isinstance(index, ast.Tuple) else [index]:
                _plain(one, units, "an index")
            return _walk(inner, units)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return _same(_walk(left, units), _walk(right, units), ast.unparse(node))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _walk(left, units) * _walk(right, units)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _walk(left, units) / _walk(right, units)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
            return _walk(left, units) ** power
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            _plain(right, units, "an exponent")
            return _plain(left, units, "the base of a power with a variable exponent")
        case ast.Call(func=ast.Name(id=name), args=args):
            return _call(name, args, units)
    raise ValueError(f"{ast.unparse(node)} has no rule for its unit")


def _call(name: str, args: Sequence[ast.expr], units: Mapping[str, str]) -> Any:
    if name == "sqrt":
        return _walk(args[0], units) ** 0.5
    if name in ("exp", "log", "Product"):
        return _plain(args[0], units, f"the argument of {name}")
    if name == "Sum":
        return _walk(args[0], units)
    first, *rest = (_walk(arg, units) for arg in args)  # Max
    return functools.reduce(lambda a, b: _same(a, b, name), rest, first)


def _plain(node: ast.expr, units: Mapping[str, str], what: str) -> Any:
    return _same(_unit("1"), _walk(node, units), f"{what}, {ast.unparse(node)},")


def _same(one: Any, other: Any, where: str) -> Any:
    """`one`, if the other unit is the same; else UnitMismatch."""
    ratio = (1 * other / (1 * one)).to_base_units()
    if not ratio.unitless or not isclose(ratio.magnitude, 1.0, rel_tol=1e-12):
        by = f", off by a factor of {ratio.magnitude:.6g}" if ratio.unitless else ""
        raise UnitMismatch(f"{where}: {one or 1} is not {other or 1}{by}")
    return one


def _unit(text: str) -> Any:
    return registry().Unit("" if text == "1" else text)


def evaluate(equation: Equation, values: Mapping[str, Any]) -> float | tuple[float, ...]:
    """The expression evaluated by sympy, not by the function; lists count from 1 in it.

    Returns a tuple where the left-hand side has an index.
    """
    import sympy

    lengths = _lengths(equation, values)
    names: dict[str, Any] = {}
    numbers: dict[Any, float] = {}
    for symbol in equation.symbols:
        if symbol.role == "constant":
            names[symbol.name] = symbol.value
        elif symbol.role == "size":
            names[symbol.name] = lengths.get(symbol.name)
        elif symbol.axes:
            names[symbol.name] = base = sympy.IndexedBase(symbol.name)
            numbers.update(_elements(base, values.get(symbol.name, ()), ()))
        else:
            names[symbol.name] = letter = sympy.Symbol(symbol.name)
            if symbol.name in values:
                numbers[letter] = values[symbol.name]
    known = {name: getattr(sympy, name) for name in FUNCTIONS}
    helpers = {n: getattr(sympy, n) for n in ("Integer", "Float", "Symbol")}
    formula = sympy.parse_expr(
        equation.expression, local_dict=known | names, global_dict=dict(helpers)
    )
    left = ast.parse(equation.left, mode="eval").body
    free = left.slice.id if isinstance(left, ast.Subscript) else ""
    if not free or SYMBOLS[free].role != "index":
        return _number(formula, numbers)
    count = len(equation.function(**values))
    return tuple(_number(formula.subs(names[free], i), numbers) for i in range(1, count + 1))


def _number(formula: Any, numbers: Mapping[Any, float]) -> float:
    import sympy

    exact = {what: sympy.Rational(value) for what, value in numbers.items()}
    return float(sympy.sympify(formula).doit().xreplace(exact).evalf(30))


def _lengths(equation: Equation, values: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of the lists that were passed, by the name of the size."""
    found: dict[str, int] = {}
    for symbol in equation.inputs:
        inner = values[symbol.name]
        for axis in symbol.axes:
            if found.setdefault(axis, len(inner)) != len(inner):
                raise ValueError(f"{symbol.name} has {len(inner)} {axis}, another {found[axis]}")
            inner = inner[0]
    return found


def _elements(base: Any, values: Any, index: tuple[int, ...]) -> dict[Any, float]:
    if not isinstance(values, Sequence):
        return {base[index]: values}
    found: dict[Any, float] = {}
    for i, value in enumerate(values, start=1):
        found |= _elements(base, value, (*index, i))
    return found
