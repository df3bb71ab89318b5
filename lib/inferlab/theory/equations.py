"""`@equation`: attaches to a function the formula that it computes, with all its parts.

The formula is written once, as a string that sympy reads; its names are those of
`theory.notation`. Nothing here evaluates it: tests compare function and formula at random points
and check the units, the book prints it. There is no registry: `collect` reads a list of modules.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from inferlab.theory.notation import CITATIONS, SYMBOLS, Passage, Symbol

__all__ = ["FUNCTIONS", "Equation", "collect", "equation", "names_in", "of"]

# What may be called in an expression; sympy knows all of them by these names.
FUNCTIONS = ("Max", "Product", "Sum", "exp", "log", "sqrt")
# Roles of symbols that nobody passes to a function
_BOUND = frozenset({"constant", "index", "size"})

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Equation:
    """A formula and what a reader may ask of it.

    id           lower case with dashes; the page's name
    left         the left-hand side, an expression: a symbol or an element of a list
    expression   the right-hand side; both as sympy reads them
    function     what computes it
    example      a value for each parameter of the function, with which the page computes
    example_from what the example is
    reading      how to interpret it
    assumptions  under which it holds
    passages     what the sources say around it, in our words
    cites        keys of `notation.CITATIONS`
    claim        id of the claim (data/claims.yml) that tests it; "" where none does
    """

    id: str
    title: str
    left: str
    expression: str
    function: Callable[..., Any]
    example: Mapping[str, Any]
    example_from: str
    reading: str
    assumptions: tuple[str, ...]
    passages: tuple[Passage, ...] = ()
    cites: tuple[str, ...] = ()
    claim: str = ""

    @property
    def result(self) -> Symbol:
        """The symbol on the left."""
        return SYMBOLS[names_in(self.left)[0]]

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """Every symbol of the formula, the left one first, then in order of appearance."""
        names = [*names_in(self.left), *names_in(self.expression)]
        sizes = [size for name in names for size in SYMBOLS[name].axes]
        return tuple(SYMBOLS[name] for name in dict.fromkeys([*names, *sizes]))

    @property
    def inputs(self) -> tuple[Symbol, ...]:
        """The symbols that are parameters of the function."""
        names = names_in(self.expression)
        return tuple(SYMBOLS[n] for n in names if SYMBOLS[n].role not in _BOUND)

    def compute(self) -> Any:
        """The function's value on the example, in the unit of `result`."""
        return self.function(**self.example)

    def check(self) -> None:
        """Raise ValueError where the parts contradict each other; called when it is attached."""
        known = [*names_in(self.left), *names_in(self.expression)]
        unknown = [name for name in known if name not in SYMBOLS]
        if unknown:
            raise ValueError(f"{self.id}: no symbol named {', '.join(unknown)} in theory.notation")
        if self.result.role in _BOUND:
            raise ValueError(f"{self.id}: {self.result.name} on the left is a {self.result.role}")
        wanted = {symbol.name for symbol in self.inputs}
        for what, names in (
            ("the function takes", set(inspect.signature(self.function).parameters)),
            ("the example gives", set(self.example)),
        ):
            if names != wanted:
                raise ValueError(
                    f"{self.id}: {what} {', '.join(sorted(names)) or 'nothing'}, the expression "
                    f"needs {', '.join(sorted(wanted))}"
                )
        if missing := set(self.cites) - set(CITATIONS):
            raise ValueError(f"{self.id}: no citation {', '.join(sorted(missing))}")


def equation(
    id: str,
    *,
    title: str,
    left: str,
    expression: str,
    example: Mapping[str, Any],
    example_from: str,
    reading: str,
    assumptions: tuple[str, ...],
    passages: tuple[Passage, ...] = (),
    cites: tuple[str, ...] = (),
    claim: str = "",
) -> Callable[[F], F]:
    """Attach an `Equation` to the function below, as its attribute `equation`.

    Raises ValueError when the parameters of the function are not the symbols of the expression
    (constants, indices and lengths apart), or a symbol or citation is not known.
    """

    def attach(function: F) -> F:
        attached = Equation(
            id, title, left, expression, function, example, example_from, reading, assumptions,
            passages, cites, claim,
        )  # fmt: skip
        attached.check()
        function.equation = attached  # type: ignore[attr-defined]
        return function

    return attach


def of(function: Callable[..., Any]) -> Equation:
    """The equation of a function. Raises ValueError for a function that has none."""
    found = getattr(function, "equation", None)
    if not isinstance(found, Equation):
        raise ValueError(f"{function!r} has no equation: one is attached with @equation")
    return found


def collect(modules: Iterable[ModuleType]) -> tuple[Equation, ...]:
    """The equations of the functions defined in these modules, in order of definition.

    Raises ValueError for an id that comes twice.
    """
    found: dict[str, Equation] = {}
    for module in modules:
        for thing in vars(module).values():
            one = getattr(thing, "equation", None)
            if isinstance(one, Equation) and thing.__module__ == module.__name__:
                if one.id in found:
                    raise ValueError(f"two equations have the id {one.id!r}")
                found[one.id] = one
    return tuple(found.values())


def names_in(expression: str) -> tuple[str, ...]:
    """The names of an expression in order of appearance, functions left out.

    Raises ValueError for what is no expression, or calls what is not in FUNCTIONS.
    """
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{expression!r} is no expression: {error.msg}") from None
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        if not (isinstance(call, ast.Name) and call.id in FUNCTIONS):
            raise ValueError(
                f"{ast.unparse(call)} is called in {expression!r}: known are {', '.join(FUNCTIONS)}"
            )
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n not in calls]
    names.sort(key=lambda n: (n.lineno, n.col_offset))
    return tuple(dict.fromkeys(n.id for n in names))
