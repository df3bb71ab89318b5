"""The additive predictor: t = L t_0 + bytes / (beta BW) + FLOP / (phi F), term by term.

The plain roofline hides the shorter of reading and computing behind the longer, and knows no other
time. A step of a real machine also takes a fixed time per layer, does not reach its ceilings, and
overlaps little. This model adds the parts up. Its constants are arguments: they belong to a
machine, a phase and a kernel path, and are calibrated or fitted elsewhere (`lab.fitting`).

A cost is an amount times a constant: `costs` lists the amounts of a step by (term, constant). The
sum over terms is the time, and the same table is the design matrix of a fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from inferlab.theory.counts import StepCount
from inferlab.theory.shapes import ModelShape
from inferlab.theory.units import bytes_per_weight

TERMS = ("weights", "kv", "attention", "head", "fixed", "communication")
PHASES = ("decode", "prefill")
PATHS = ("gemv", "small", "gemm")
RATES = ("beta", "beta_kv", "phi", "phi_attention", "link")
"""Constants that divide an amount; the others multiply one."""

Costs = dict[tuple[str, str], float]


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
        """The constant of this name; beta_kv and phi_attention fall back to beta and phi."""
        found = getattr(self, name)
        return getattr(self, name.split("_")[0]) if found is None else found

    def seconds(self, name: str, amount: float) -> float:
        """Seconds of an amount of `costs` that this constant prices."""
        return amount / self.value(name) if name in RATES else amount * self.value(name)

    def doubt(self, name: str, amount: float) -> float:
        """Half the width of `seconds` over the constant's range; 0 where there is none.

        Seconds; infinite where the constant was not identified from its rows.
        """
        span = self.ranges.get(name)
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
    """

    machine: object
    constants: Mapping[tuple[str, str] | str, Constants] = field(hash=False)
    name: str = ""

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


class Prediction(float):
    """Predicted seconds of a step, with what they are made of.

    terms      term -> seconds; they sum to the prediction
    doubts     term -> half the width in seconds that the constants' ranges leave it
    roofline   seconds of the plain roofline at the same ceilings
    path       kernel path; constants: those used; note: one sentence on where they come from
    """

    terms: dict[str, float]
    doubts: dict[str, float]
    roofline: float
    path: str
    constants: Constants
    note: str

    def __new__(cls, terms, doubts, roofline, path, constants, note=""):
        made = super().__new__(cls, sum(terms.values()))
        made.terms, made.doubts, made.roofline = dict(terms), dict(doubts), roofline
        made.path, made.constants, made.note = path, constants, note
        return made

    def __reduce__(self):
        parts = (self.terms, self.doubts, self.roofline, self.path, self.constants, self.note)
        return (Prediction, parts)

    def split_residual(self, measured: float) -> dict[str, float]:
        """measured − predicted, in seconds, laid on the terms: as `split_residual` does."""
        return split_residual(self, measured)


def costs(
    count: StepCount,
    shape: ModelShape,
    machine,
    dtype: str = "bf16",
    n_gpus: int = 1,
    act_dtype: str = "bf16",
) -> Costs:
    """Amounts of a step: (term, constant) -> seconds at the ceiling, layers, steps or bytes.

    weights and head: their bytes / BW (priced by beta) and FLOP / F (phi); kv: cache bytes read and
    written / BW (beta_kv); attention: FLOP of scores, softmax and values / F (phi_attention);
    fixed: L, 1, the sequences. The head is the output matrix alone, with one row per logit.

    n_gpus > 1 is tensor parallelism: work is divided by n, a KV head that cannot be divided is
    read by every GPU that needs it, and each layer makes 2 all-reduces of its T tokens. As a ring
    one moves 2 (n - 1) / n T d b bytes through each link. Source: Shoeybi et al., Megatron-LM,
    arXiv 1909.08053, section 3; ring: Patarasuk and Yuan, JPDC 69(2), 2009.
    """
    if n_gpus < 1:
        raise ValueError(f"n_gpus={n_gpus}: at least one machine does the work")
    bandwidth, peak = machine.bandwidth * n_gpus, machine.peak_flops(dtype) * n_gpus
    attention = [op for op in count.ops if op.name.startswith(("scores", "softmax", "values"))]
    head = count.op("head")
    rest = count.flops - head.flops - sum(op.flops for op in attention)
    heads = 1 if shape.kv_lora_rank else shape.n_kv_heads
    kv_bandwidth = machine.bandwidth * min(n_gpus, heads)
    made = {
        ("weights", "beta"): (count.weight_bytes - head.weight_bytes) / bandwidth,
        ("weights", "phi"): rest / peak,
        ("kv", "beta_kv"): (count.kv_read + count.kv_written) / kv_bandwidth,
        ("attention", "phi_attention"): sum(op.flops for op in attention) / peak,
        ("head", "beta"): head.weight_bytes / bandwidth,
        ("head", "phi"): head.flops / peak,
        ("fixed", "layer"): float(shape.n_layers),
        ("fixed", "step"): 1.0,
        ("fixed", "sequence"): float(count.sequences),
    }
    if n_gpus > 1:
        reduces = 2 * shape.n_layers
        message = count.tokens * shape.d_model * bytes_per_weight(act_dtype)
        made["communication", "allreduce"] = float(reduces)
        made["communication", "link"] = reduces * 2 * (n_gpus - 1) / n_gpus * message
    return made


def price(
    amounts: Costs, constants: Constants, roofline: float, path: str, note: str = ""
) -> Prediction:
    """The prediction that these constants make of these amounts.

    Doubts of the constants within a term are added in squares, as of independent constants.
    """
    terms, squares = dict.fromkeys(TERMS, 0.0), dict.fromkeys(TERMS, 0.0)
    for (term, name), amount in amounts.items():
        terms[term] += constants.seconds(name, amount)
        squares[term] += constants.doubt(_ranged(constants, name), amount) ** 2
    doubts = {term: math.sqrt(square) for term, square in squares.items()}
    return Prediction(terms, doubts, roofline, path, constants, note)


def split_residual(prediction: Prediction, measured: float) -> dict[str, float]:
    """measured − predicted, in seconds, laid on the terms; the parts sum to the residual.

    With ranges: in proportion to the square of each term's doubt, which is the most likely split
    when the terms' errors are independent. Where a term's constants were not identified, such terms
    alone take it, in equal parts. Without ranges: in proportion to the terms. It is a
    suspicion, not a measurement: one number cannot say which of several terms is wrong.
    """
    residual, doubts = measured - float(prediction), prediction.doubts
    open_terms = [term for term in doubts if math.isinf(doubts[term])]
    if open_terms:
        weights = {term: float(term in open_terms) for term in doubts}
    elif any(doubts.values()):
        weights = {term: doubt**2 for term, doubt in doubts.items()}
    else:
        weights = prediction.terms
    total = sum(weights.values())
    if not total:
        raise ValueError("a prediction of 0 s has no term that a residual could be laid on")
    return {term: residual * weight / total for term, weight in weights.items()}


def _ranged(constants: Constants, name: str) -> str:
    """The constant whose range holds for this one: beta's for a beta_kv that was not given."""
    return name if getattr(constants, name) is not None else name.split("_")[0]


def _key(key: tuple[str, str] | str) -> tuple[str, str]:
    return (key, "any") if isinstance(key, str) else (key[0], key[1])
