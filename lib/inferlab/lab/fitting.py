"""Fit the constants of the additive predictor to a table of measured steps, and say what is known.

Non-negative least squares on relative errors: a step of 2 ms counts as much as one of 2 s. Each
constant comes with a bootstrap interval, and with the reason where the rows do not tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inferlab.theory.additive import PATHS, PHASES, RATES, Constants, Fitted, Prediction, Range
from inferlab.theory.constants import path_of
from inferlab.theory.roofline import Machine, predict, step_costs
from inferlab.theory.shapes import ModelShape

FREE = {
    "decode": ("layer", "beta", "phi"),
    "prefill": ("layer", "phi", "beta"),
}
"""What is fitted unless told otherwise; beta_kv is beta, phi_attention phi, activations cached."""

SHARES = tuple(name for name in RATES if name != "link")

_SAME = 0.01  # of a column that earlier ones leave over, below which it is proportional to them
_FACTOR, _MOVES = 3.0, 0.1  # an interval this wide, moving a row by this share of its time


@dataclass(frozen=True)
class Row:
    """One measured step: the arguments of `roofline.predict`, and the seconds it took.

    group   rows of one group (default: the shape's name) are resampled and left out together
    n_gpus  tensor-parallel; label: whatever tells the row to a reader
    machine  the ceilings as they were while this step was timed, where they drift; None: as given
    """

    shape: ModelShape
    phase: str
    seconds: float
    batch: int = 1
    context: int = 1024
    prompt: int | None = None
    weight_dtype: str = "bf16"
    kv_dtype: str = "bf16"
    dtype: str | None = None
    head_dtype: str | None = None
    n_gpus: int = 1
    group: str = ""
    label: str = ""
    machine: Machine | None = None

    def __post_init__(self):
        if self.phase not in PHASES:
            raise ValueError(f"phase={self.phase!r}: a row is a step of decode or of prefill")
        if not self.seconds > 0:
            raise ValueError(f"seconds={self.seconds}: a measured step took more than no time")

    @property
    def path(self) -> str:
        """Kernel path: by the rows that a weight is used for."""
        length = self.context if self.prompt is None else self.prompt
        return path_of(self.batch * (length if self.phase == "prefill" else 1))

    @property
    def cluster(self) -> str:
        """What the row is resampled and left out with."""
        return self.group or self.shape.name

    def arguments(self) -> dict:
        """Keyword arguments of `roofline.predict`, shape and machine left out."""
        names = ("phase", "batch", "context", "prompt", "weight_dtype", "kv_dtype", "dtype",
                 "head_dtype", "n_gpus")  # fmt: skip
        return {name: getattr(self, name) for name in names}


def fit(
    rows: Iterable[Row],
    machine: Machine,
    free: dict[str | tuple[str, str], Sequence[str]] | None = None,
    base: Constants | None = None,
    by_path: bool = True,
    ceilings: bool = True,
    resamples: int = 200,
    name: str = "",
    causal_block: int = 1,
    designed: bool = False,
) -> Fitted:
    """The machine with the constants that fit these rows best, each with its interval.

    minimise the sum over rows of ((predicted − measured) / measured)², constants non-negative.

    free       phase, or (phase, path), -> constants to fit, in order: where two cannot be told
               apart, the earlier takes it all and the later says so. Default `FREE`
    base       values of the constants that are not fitted; default: ideal
    by_path    fit each kernel path (gemv, small, gemm) by itself; False: one set for all rows of a
               phase, fewer constants for a table with few rows
    ceilings   hold every share of a ceiling at 1 or less, as physics does where the ceiling is a
               nameplate; False where it was measured and may be exceeded
    causal_block  keys that the attention kernel computes at a time (`counts.step`)
    resamples  of the bootstrap: whole groups where there are 4 or more, else single rows; 0 gives
               the values without intervals
    designed   the rows were chosen, each for what it tells (a calibration): not rows are resampled
               but their errors, since without some of them nothing could be told
    Raises ValueError when there are no rows.
    """
    base, chosen, found = base or Constants(), {**FREE, **(free or {})}, {}
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        parts.setdefault((row.phase, row.path if by_path else "any"), []).append(row)
    if not parts:
        raise ValueError("no rows were given: constants are fitted to measured steps")
    for key in sorted(parts, key=lambda k: (k[0], (*PATHS, "any").index(k[1]))):
        names = tuple(chosen.get(key, chosen[key[0]]))
        problem = _Problem(parts[key], Fitted(machine, {}, "", causal_block), names, base, ceilings)
        found[key] = problem.constants(resamples, designed)
    return Fitted(machine, found, name, causal_block)


def errors(machine: Machine, rows: Iterable[Row]) -> np.ndarray:
    """Relative errors (predicted − measured) / measured of `roofline.predict` on these rows."""
    return np.array([float(predicted(machine, row)) / row.seconds - 1 for row in rows])


def predicted(machine: Machine, row: Row) -> Prediction:
    """`roofline.predict` of a row, at the ceilings that its own machine had, where it has one."""
    if row.machine is not None and isinstance(machine, Fitted):
        machine = replace(machine, machine=row.machine)
    return predict(row.shape, machine, **row.arguments())


def leave_out(
    rows: Iterable[Row],
    fitted: Callable[[list[Row]], Machine],
    by: Callable[[Row], Hashable] = lambda row: row.cluster,
) -> list[tuple[Row, float]]:
    """(row, predicted seconds) of every row, by a fit that has not seen its group.

    fitted  what makes a machine of rows, such as `lambda rows: fit(rows, machine)`
    by      the group of a row: its model unless given. Raises ValueError for a single group.
    """
    rows = list(rows)
    groups = list(dict.fromkeys(by(row) for row in rows))
    if len(groups) < 2:
        raise ValueError(f"only {groups} is there: leaving one out needs another to fit to")
    made = []
    for group in groups:
        seen = fitted([row for row in rows if by(row) != group])
        mine = [row for row in rows if by(row) == group]
        made += [(row, float(predicted(seen, row))) for row in mine]
    return made


def nnls(design: np.ndarray, target: np.ndarray) -> np.ndarray:
    """x >= 0 that minimises |design x − target|², design (m, n), by the active-set method.

    Source: Lawson and Hanson, Solving Least Squares Problems (1974), chapter 23.
    """
    n = design.shape[1]
    x, passive = np.zeros(n), np.zeros(n, dtype=bool)
    tolerance = 1e-12 * max(1.0, float(np.abs(design.T @ target).max(initial=0.0)))
    for _ in range(10 * n + 10):
        gain = np.where(passive, -np.inf, design.T @ (target - design @ x))
        if passive.all() or gain.max() <= tolerance:
            break
        passive[gain.argmax()] = True
        while True:
            trial = np.zeros(n)
            trial[passive] = np.linalg.lstsq(design[:, passive], target, rcond=None)[0]
            wrong = passive & (trial <= 0)
            if not wrong.any():
                break
            step = float(np.min(x[wrong] / (x[wrong] - trial[wrong])))
            x = x + step * (trial - x)
            passive &= x > 1e-15 * max(1.0, float(x.max()))
        x = trial
    return x


class _Problem:
    """The design of one phase and path: columns of `free`, the rest priced by `base`."""

    def __init__(
        self,
        rows: list[Row],
        machine: Fitted,
        free: tuple[str, ...],
        base: Constants,
        ceilings: bool,
    ):
        self.rows, self.free, self.base = rows, free, base
        self.measured = np.array([row.seconds for row in rows])
        self.floor = np.array([float(ceilings and name in SHARES) for name in free])
        columns, offset = [], []
        for row in rows:
            here, block = row.machine or machine, machine.causal_block
            amounts, _ = step_costs(row.shape, here, **row.arguments(), causal_block=block)
            owner = {name: self._owner(name) for _, name in amounts}
            columns.append(
                [sum(a for (_, k), a in amounts.items() if owner[k] == name) for name in free]
            )
            rest = ((k, a) for (_, k), a in amounts.items() if owner[k] not in free)
            offset.append(sum(base.seconds(k, a) for k, a in rest))
        self.columns = np.array(columns) / self.measured[:, None]  # per unit of measured time
        self.target = 1 - np.array(offset) / self.measured

    def _owner(self, name: str) -> str:
        """The constant that prices this amount: itself if free, else whom it falls back to."""
        return name if name in self.free else self.base.bound(name)

    def solve(
        self, picks: np.ndarray, kept: list[int], errors: np.ndarray | float = 0.0
    ) -> np.ndarray:
        """Coefficients of the kept columns: 1 / share for rates, seconds for the others.

        Every column takes its floor, kept or not: the time at the ceiling. errors: added to the
        relative times of the rows.
        """
        design, floor = self.columns[np.ix_(picks, kept)], self.floor[kept]
        scale = np.linalg.norm(design, axis=0)
        scale[scale == 0] = 1
        left = self.target[picks] + errors - self.columns[picks] @ self.floor
        return floor + nnls(design / scale, left) / scale

    def constants(self, resamples: int, designed: bool) -> Constants:
        kept, why = self._told_apart()
        everything = np.arange(len(self.rows))
        best = self.solve(everything, kept)
        if designed:
            fixed = np.setdiff1d(np.arange(len(self.free)), kept)
            made = self.columns[:, kept] @ best + self.columns[:, fixed] @ self.floor[fixed]
            errors, random = self.target - made, np.random.default_rng(0)
            drawn = random.choice(errors, (resamples, len(errors))) - errors
            tried = np.array([self.solve(everything, kept, error) for error in drawn])
        else:
            tried = np.array([self.solve(picks, kept) for picks in self._draws(resamples)])
        values, ranges = {}, {}
        for i, name in enumerate(self.free):
            if i not in kept:
                at_least = self.floor[i]  # as `solve` has it; a constant that costs nothing else
                values[name] = _inverse(at_least) if name in RATES else 0.0
                ranges[name] = Range(values[name], values[name], why[i])
                continue
            at = kept.index(i)
            values[name] = _inverse(best[at]) if name in RATES else float(best[at])
            if not len(tried):
                continue
            low, high = np.quantile(tried[:, at], (0.025, 0.975))
            low, high = float(min(low, best[at])), float(max(high, best[at]))
            ends = (_inverse(high), _inverse(low)) if name in RATES else (low, high)
            ranges[name] = Range(*ends, self._wide(low, high, self.columns[:, i]))
        return replace(self.base, **values, ranges=ranges)

    def _told_apart(self) -> tuple[list[int], dict[int, str]]:
        """Columns that earlier ones do not make up, and for each other the reason."""
        kept: list[int] = []
        why = {}
        for i, name in enumerate(self.free):
            column = self.columns[:, i]
            size = np.linalg.norm(column)
            if not size:
                why[i] = f"no row has anything that {name} prices"
                continue
            if kept:
                basis = self.columns[:, kept]
                shares, *_ = np.linalg.lstsq(basis, column, rcond=None)
                if np.linalg.norm(column - basis @ shares) < _SAME * size:
                    most = max(
                        range(len(kept)), key=lambda j: abs(shares[j]) * np.linalg.norm(basis[:, j])
                    )
                    why[i] = f"not told apart from {self.free[kept[most]]} by these rows"
                    continue
            kept.append(i)
        return kept, why

    def _draws(self, resamples: int) -> list[np.ndarray]:
        """Row numbers of each resample, seeded."""
        random = np.random.default_rng(0)
        groups: dict[str, list[int]] = {}
        for i, row in enumerate(self.rows):
            groups.setdefault(row.cluster, []).append(i)
        if len(groups) < 4:
            groups = {str(i): [i] for i in range(len(self.rows))}
        members = [np.array(m) for m in groups.values()]
        picks = random.integers(0, len(members), (resamples, len(members)))
        return [np.concatenate([members[j] for j in pick]) for pick in picks]

    def _wide(self, low: float, high: float, column: np.ndarray) -> str:
        """Why this interval tells nothing, if so: wide, and some row's time would move with it."""
        moves = float((high - low) * column.max())
        if high <= _FACTOR * low or moves <= _MOVES:
            return ""
        return f"its interval moves a row's time by {moves:.0%}"


def _inverse(coefficient: float) -> float:
    return float(1 / coefficient) if coefficient > 0 else float("inf")
