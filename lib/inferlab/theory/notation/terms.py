"""What a symbol, an operation, a word, a passage and a citation are: the metadata of the formulas.

Units are strings in the book's own base units (FLOP, byte, token, parameter, dollar, second, step,
request, layer, head, vector, element, expert, sequence, machine, round), joined by *, / and
brackets; "1" is a plain number. Nothing here computes.
"""

from __future__ import annotations

from dataclasses import dataclass

# What kind of quantity a symbol is, and the words a table says it with.
ROLES = {
    "model": "property of the model",
    "machine": "property of the machine",
    "request": "chosen by the request",
    "load": "set by the load",
    "counted": "counted from model and step",
    "measured": "measured",
    "price": "price",
    "fitted": "fitted to measurements",
    "constant": "constant",
    "index": "index",
    "size": "length of a list",
    "result": "result",
}

_GREEK = {
    "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "κ": r"\kappa", "λ": r"\lambda",
    "τ": r"\tau", "φ": r"\varphi",
}  # fmt: skip


@dataclass(frozen=True)
class Passage:
    """A place in a source, retold in our words: file "000" or "001", section, what it says."""

    file: str
    section: str
    says: str


@dataclass(frozen=True)
class Citation:
    """A published source: who and what, where, and what in it supports us."""

    key: str
    text: str
    url: str
    shows: str


@dataclass(frozen=True)
class Symbol:
    """One letter of the book and all that a reader may ask of it.

    name         as the functions' parameter is called
    letter, sub  how it is written: one letter is set in italics, several upright
    title        what it is called, without an article
    unit         of the value, or of each element of a list
    role         a key of ROLES
    meaning      one sentence
    origin       where its value comes from
    value        of a constant
    shown        False: a constant 1 that only carries a unit and is not written
    axes         names of the sizes of a list, one per index; indices count from 1
    given        letter of the sequence x where an element is written p(x_t | x_<t)
    about        background, in our words
    """

    name: str
    letter: str
    title: str
    unit: str
    role: str
    meaning: str
    origin: str = ""
    sub: str = ""
    value: float | None = None
    shown: bool = True
    axes: tuple[str, ...] = ()
    given: str = ""
    about: str = ""
    passage: Passage | None = None
    cites: tuple[str, ...] = ()

    def __post_init__(self):
        if self.role not in ROLES:
            raise ValueError(f"{self.name}: the role {self.role!r} is none of {', '.join(ROLES)}")
        if (self.role == "constant") != (self.value is not None):
            raise ValueError(f"{self.name}: a constant has a value, and nothing else has one")

    @property
    def latex(self) -> str:
        """The symbol as LaTeX writes it, e.g. C_{\\mathrm{prefill}}."""
        base = _GREEK.get(self.letter, self.letter)
        if len(base) > 1 and base.isalpha():
            base = rf"\mathrm{{{base}}}"
        if not self.sub:
            return base
        sub = self.sub if len(self.sub) == 1 else rf"\mathrm{{{self.sub}}}"
        return f"{base}_{{{sub}}}"

    @property
    def plain(self) -> str:
        """The symbol in plain text: C_prefill."""
        return f"{self.letter}_{self.sub}" if self.sub else self.letter


@dataclass(frozen=True)
class Operation:
    """What stands between the symbols: its sign, its name, and what it does to units."""

    name: str
    sign: str
    title: str
    meaning: str
    units: str
    about: str = ""


@dataclass(frozen=True)
class Word:
    """A word of the field that is no quantity, explained in a sentence or two."""

    word: str
    meaning: str
    see: tuple[str, ...] = ()


def table(*symbols: Symbol) -> dict[str, Symbol]:
    """Symbols by name. Raises ValueError for a name that comes twice."""
    names = [s.name for s in symbols]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise ValueError(f"a symbol has one entry; there are more for {', '.join(sorted(twice))}")
    return dict(zip(names, symbols, strict=True))
