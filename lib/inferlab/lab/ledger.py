"""The ledger of claims, `data/claims.yml`, read and checked."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import yaml

from inferlab import data
from inferlab.lab import verdicts
from inferlab.lab.verdicts import Statement

KINDS = ("number", "ratio", "inequality", "limit", "definition", "norm")
UNTESTABLE = ("definition", "norm")
MEANS = ("count", "clock")
NEEDS = ("cuda", "bound")
PARTIES = ("source", "ours")


@dataclass(frozen=True)
class Claimed:
    """A statement as the ledger has it; `value` None: each case brings the number, by `formula`."""

    relation: str
    value: float | None = None
    tolerance: float = 0.0
    formula: str = ""
    why: str = ""

    def at(self, value: float | None) -> Statement | None:
        """The statement in one case; None where neither ledger nor case gives a number.

        Raises ValueError when both do and differ: a case cannot overrule the ledger.
        """
        if self.value is not None and value is not None and value != self.value:
            raise ValueError(f"the ledger states {self.value}; the case brings {value}")
        number = self.value if self.value is not None else value
        if number is None:
            return None
        return Statement(self.relation, float(number), self.tolerance)


@dataclass(frozen=True)
class Regime:
    """Where a claim is tried: `expect` says how each party's statement comes out there."""

    id: str
    text: str
    expect: Mapping[str, str]
    states: Mapping[str, Claimed] = field(default_factory=dict)
    unit: str | None = None
    by: str | None = None
    needs: str | None = None


@dataclass(frozen=True)
class Entry:
    """One claim of a source (the fields are explained at the head of `data/claims.yml`)."""

    id: str
    number: int
    file: str
    section: str
    says: str
    kind: str
    quantity: str
    unit: str
    notebook: str
    regimes: tuple[Regime, ...]
    foreseen: str
    recorded: str | None
    source: Claimed | None = None
    ours: Claimed | None = None
    we_say: str = ""
    why: str = ""
    by: str = "count"
    also: Mapping[str, str] = field(default_factory=dict)

    def regime(self, id: str) -> Regime:
        """The regime of this id. Raises ValueError, listing those there are."""
        for regime in self.regimes:
            if regime.id == id:
                return regime
        raise ValueError(
            f"claim {self.id!r} has no regime {id!r}: there are "
            f"{', '.join(r.id for r in self.regimes) or 'none'}"
        )

    def claimed(self, party: str, regime: Regime) -> Claimed | None:
        """What "source" or "ours" states in a regime; None where it says nothing there."""
        if party not in regime.expect:
            return None
        return regime.states.get(party) or getattr(self, party)

    def expected(self, regimes: tuple[Regime, ...] | None = None) -> str:
        """The verdict that follows from `expect` of these regimes (default: of all)."""
        if self.kind in UNTESTABLE:
            return verdicts.NOT_TESTABLE
        tried = self.regimes if regimes is None else regimes
        outcomes = [[r.expect[p] for r in tried if p in r.expect] for p in PARTIES]
        return verdicts.verdict(*outcomes) if outcomes[0] else verdicts.UNDECIDED


class Ledger(Mapping[str, Entry]):
    """The entries by id, in the order of their numbers; `titles` of the source files."""

    def __init__(self, entries: tuple[Entry, ...], titles: Mapping[str, str]) -> None:
        self._entries = {entry.id: entry for entry in entries}
        self.titles = dict(titles)

    def __getitem__(self, id: str) -> Entry:
        if id not in self._entries:
            near = get_close_matches(id, self._entries, n=3, cutoff=0.4)
            hint = "near are" if near else f"it has {len(self)}, such as"
            shown = ", ".join(near or list(self)[:3])
            raise ValueError(f"no claim {id!r} in data/claims.yml; {hint} {shown}")
        return self._entries[id]

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def __iter__(self):
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def read(path: str | Path | None = None) -> Ledger:
    """The ledger of `data/claims.yml`, or of another file of that form.

    Raises ValueError, naming the claim and the field, for an entry that is not as it should be.
    """
    file = Path(path) if path else data.path("claims.yml")
    return _read(file, file.stat().st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _read(file: Path, modified: int) -> Ledger:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    titles = {key: value["title"] for key, value in content["sources"].items()}
    entries = tuple(_entry(raw, titles) for raw in content["claims"])
    for what in ("id", "number"):
        seen = [getattr(entry, what) for entry in entries]
        twice = sorted({str(x) for x in seen if seen.count(x) > 1})
        if twice:
            raise ValueError(f"{file.name}: the {what} {', '.join(twice)} stands there twice")
    return Ledger(tuple(sorted(entries, key=lambda e: e.number)), titles)


def _entry(raw: Mapping, titles: Mapping[str, str]) -> Entry:
    name = f"claim {raw.get('id', '?')!r}"
    try:
        parties = {p: Claimed(**raw[p]) for p in PARTIES if raw.get(p)}
        regimes = tuple(_regime(r) for r in raw["regimes"])
        entry = Entry(**{**raw, **parties, "regimes": regimes})
        _check(entry, titles)
    except (KeyError, TypeError, AttributeError) as fault:
        raise ValueError(f"{name}: a field is missing or unknown: {fault}") from None
    except ValueError as fault:
        raise ValueError(f"{name}: {fault}") from None
    return entry


def _regime(raw: Mapping) -> Regime:
    states = {party: Claimed(**claimed) for party, claimed in raw.get("states", {}).items()}
    return Regime(**{**raw, "states": states})


def _check(entry: Entry, titles: Mapping[str, str]) -> None:
    untestable = entry.kind in UNTESTABLE
    outcomes = (verdicts.AGREES, verdicts.EXCLUDED)
    problems = [
        (entry.kind not in KINDS, f"kind is one of {', '.join(KINDS)}"),
        (entry.file not in titles, f"file is one of {', '.join(titles)}"),
        (entry.by not in MEANS, f"by is one of {MEANS}"),
        (entry.foreseen not in verdicts.VERDICTS, f"foreseen is one of {verdicts.VERDICTS}"),
        (entry.recorded not in (None, *verdicts.VERDICTS), "recorded is null or a verdict"),
        (untestable == bool(entry.regimes), "regimes, or a definition or norm: one of the two"),
        (untestable and not entry.why, "a definition or norm says why it cannot be tested"),
        (bool(entry.ours) and not entry.we_say, "ours needs we_say"),
        (len({r.id for r in entry.regimes}) != len(entry.regimes), "regimes differ in their id"),
    ]
    for regime in entry.regimes:
        known = set(regime.expect) <= set(PARTIES) and set(regime.expect.values()) <= set(outcomes)
        problems.append((not regime.expect or not known, f"{regime.id}: expect {outcomes}"))
        problems.append((regime.by not in (None, *MEANS), f"{regime.id}: by is one of {MEANS}"))
        problems.append((regime.needs not in (None, *NEEDS), f"{regime.id}: needs {NEEDS}"))
        for party in regime.expect:
            claimed = entry.claimed(party, regime)
            problems.append((claimed is None, f"{regime.id}: {party} states nothing"))
            if claimed is not None:
                claimed.at(claimed.value)  # raises for a statement that makes no sense
                none = claimed.value is None and not claimed.formula
                problems.append((none, f"{regime.id}: {party} needs a value or a formula"))
    for wrong, rule in problems:
        if wrong:
            raise ValueError(rule)
    recorded = entry.recorded or entry.foreseen
    if entry.expected() != recorded:
        raise ValueError(
            f"expect of its regimes makes {entry.expected()!r}, and {recorded!r} stands there"
        )
