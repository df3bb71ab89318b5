"""Constants of the additive predictor: what a machine adds to the ideal, per phase and kernel path.

They are arguments of `theory.additive`: calibrated on a machine, fitted to a table of measurements
(`lab.fitting`), or set by hand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

PHASES = ("decode", "prefill")
PATHS = ("gemv", "small", "gemm")
RATES = ("beta", "beta_kv", "beta_act", "phi", "phi_attention", "link")
"""Constants that divide an amount; the others multiply one."""


def path_of(rows: int) -> str:
    """The kernel path of `rows` rows: one (gemv), up to 15 (small), 16 and more (gemm).

    A row is a token that a weight is used for: `batch` in decode, all prompt tokens in prefill.
    """
    if rows < 1:
        raise ValueError(f"rows={rows}: a product has at least one row")
    return "gemv" if rows == 1 else "small" if rows < 16 else "gemm"


@dataclass(frozen=True)
class Range:
    """The interval [low, high] of a fitted constant; `why` says why it cannot be told, if so."""

    low: float
    high: float
    why: str = ""

    @property
    def identified(self) -> bool:
        """False where the rows do not tell this constant apart from the others."""
        return not self.why


@dataclass(frozen=True)
class Constants:
    """What a machine adds to the ideal, in one phase and on one kernel path.

    layer          t_0, seconds per layer that no work explains
    step           seconds per step (host, sampling) that no layer explains
    sequence       seconds per sequence of the batch, such as its share of sampling
    beta           share of the bandwidth reached when weights are read
    beta_kv        the same for the KV cache; None is beta
    beta_act       the same for activations; None is beta, inf leaves them in the caches
    phi            share of the peak reached in matrix products
    phi_attention  the same for attention; None is phi. inf hides the FLOP behind the bytes
    allreduce      seconds an all-reduce takes before a byte moves
    link           byte/s of a GPU's link during an all-reduce
    ranges         constant -> `Range`, for those that were fitted

    Without arguments: the ideal, beta = phi = 1 and no fixed time. With shares of at most 1 a
    predicted step is never faster than the plain roofline at the same ceilings.
    """

    layer: float = 0.0
    step: float = 0.0
    sequence: float = 0.0
    beta: float = 1.0
    beta_kv: float | None = None
    beta_act: float | None = math.inf
    phi: float = 1.0
    phi_attention: float | None = None
    allreduce: float = 0.0
    link: float = math.inf
    ranges: Mapping[str, Range] = field(default_factory=dict, hash=False)

    def __post_init__(self):
        for name in CONSTANTS:
            value = getattr(self, name)
            if value is None:
                continue
            if name in RATES and not value > 0:
                raise ValueError(f"{name}={value}: a share of a ceiling or a rate is above 0")
            if name not in RATES and not 0 <= value < math.inf:
                raise ValueError(f"{name}={value}: a fixed time is zero or more seconds")

    def value(self, name: str) -> float:
        """The constant of this name, or of the one that it falls back to (`bound`)."""
        return getattr(self, self.bound(name))

    def bound(self, name: str) -> str:
        """Whose value holds: beta's for a beta_kv or beta_act of None, phi's for phi_attention."""
        return name.split("_")[0] if getattr(self, name) is None else name

    def seconds(self, name: str, amount: float) -> float:
        """Seconds of an amount of `costs` that this constant prices."""
        return amount / self.value(name) if name in RATES else amount * self.value(name)

    def doubt(self, name: str, amount: float) -> float:
        """Half the width of `seconds` over the constant's range; 0 where there is none.

        Seconds; infinite where the constant was not identified from its rows.
        """
        span = self.ranges.get(self.bound(name))
        if span is None or not amount:
            return 0.0
        if not span.identified:
            return math.inf
        ends = (span.low, span.high)
        low, high = sorted(amount / end if name in RATES else amount * end for end in ends)
        return (high - low) / 2


CONSTANTS = tuple(f.name for f in fields(Constants) if f.name != "ranges")


@dataclass(frozen=True)
class Fitted:
    """A machine with its constants: what `roofline.predict` takes where it shall be right.

    machine    ceilings: nameplate (`hardware.get`) or measured (`lab.calibrate`)
    constants  (phase, path) -> Constants; the path 'any' holds where no other is given, and so does
               the phase alone, 'decode' or 'prefill', as a key
    name       what they are constants of: machine, data type, serving program
    causal_block  keys that its attention kernel computes at a time (`counts.step`)
    """

    machine: object
    constants: Mapping[tuple[str, str] | str, Constants] = field(hash=False)
    name: str = ""
    causal_block: int = 1

    def __post_init__(self):
        for key in self.constants:
            phase, path = _key(key)
            if phase not in PHASES or path not in (*PATHS, "any"):
                raise ValueError(
                    f"constants for {key!r}: keys are (phase, path) with a phase of "
                    f"{', '.join(PHASES)} and a path of {', '.join(PATHS)} or any"
                )

    @property
    def bandwidth(self) -> float:
        """byte/s of the machine, as its own ceiling has it."""
        return self.machine.bandwidth

    def peak_flops(self, dtype: str = "bf16") -> float:
        """FLOP/s of the machine, as its own ceiling has it."""
        return self.machine.peak_flops(dtype)

    def of(self, phase: str, path: str) -> Constants:
        """The constants of a phase and path. Raises ValueError, naming those that are there."""
        have = {_key(key): value for key, value in self.constants.items()}
        found = have.get((phase, path), have.get((phase, "any")))
        if found is None:
            there = ", ".join(f"({a}, {b})" for a, b in have) or "none"
            raise ValueError(
                f"no constants for ({phase}, {path}): there are {there}; a step's time belongs to "
                "its kernel path, so fit rows of that path or pass Constants for it"
            )
        return found


def _key(key: tuple[str, str] | str) -> tuple[str, str]:
    return (key, "any") if isinstance(key, str) else (key[0], key[1])
