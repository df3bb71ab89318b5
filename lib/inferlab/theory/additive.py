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

from inferlab.theory.constants import (
    CONSTANTS,
    PATHS,
    PHASES,
    RATES,
    Constants,
    Fitted,
    Range,
    path_of,
)
from inferlab.theory.counts import StepCount
from inferlab.theory.shapes import ModelShape

__all__ = [
    "CONSTANTS", "PATHS", "PHASES", "RATES", "TERMS", "Constants", "Costs", "Fitted", "Prediction",
    "Range", "costs", "path_of", "price", "split_residual",
]  # fmt: skip

TERMS = ("weights", "kv", "attention", "activations", "head", "fixed", "communication")
Costs = dict[tuple[str, str], float]


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
    head_dtype: str | None = None,
    attention_dtype: str | None = None,
) -> Costs:
    """Amounts of a step: (term, constant) -> seconds at the ceiling, layers, steps or bytes.

    weights and head: their bytes / BW (priced by beta) and FLOP / F (phi); kv: cache bytes read and
    written / BW (beta_kv); attention: FLOP of scores, softmax and values / F (phi_attention);
    activations: `read_bytes` and `written_bytes` / BW (beta_act); fixed: L, 1, the sequences. The
    head is the output matrix alone, with one row per logit.
    F is the peak of the type computed in: `dtype`, and for head and attention their own if given.

    n_gpus > 1 is tensor parallelism: work is divided by n, a KV head that cannot be divided is
    read by every GPU that needs it, and each layer makes 2 all-reduces of its T tokens. As a ring
    one moves 2 (n - 1) / n T d b bytes through each link, b = 2. Source: Shoeybi et al.,
    Megatron-LM, arXiv 1909.08053, section 3; ring: Patarasuk and Yuan, JPDC 69(2), 2009.
    """
    if n_gpus < 1:
        raise ValueError(f"n_gpus={n_gpus}: at least one machine does the work")
    bandwidth, peak = machine.bandwidth * n_gpus, machine.peak_flops(dtype) * n_gpus
    of_head, of_attention = (
        machine.peak_flops(kind) * n_gpus if kind else peak
        for kind in (head_dtype, attention_dtype)
    )
    attention = [op for op in count.ops if op.name.startswith(("scores", "softmax", "values"))]
    looked, head = sum(op.flops for op in attention), count.op("head")
    kv_heads = 1 if shape.kv_lora_rank else shape.n_kv_heads
    kv_bandwidth = machine.bandwidth * min(n_gpus, kv_heads)
    made = {
        ("weights", "beta"): (count.weight_bytes - head.weight_bytes) / bandwidth,
        ("weights", "phi"): (count.flops - head.flops - looked) / peak,
        ("kv", "beta_kv"): (count.kv_read + count.kv_written) / kv_bandwidth,
        ("attention", "phi_attention"): looked / of_attention,
        ("activations", "beta_act"): (count.read_bytes + count.written_bytes) / bandwidth,
        ("head", "beta"): head.weight_bytes / bandwidth,
        ("head", "phi"): head.flops / of_head,
        ("fixed", "layer"): float(shape.n_layers),
        ("fixed", "step"): 1.0,
        ("fixed", "sequence"): float(count.sequences),
    }
    if n_gpus > 1:
        reduces = 2 * shape.n_layers
        message = count.tokens * shape.d_model * 2
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
        squares[term] += constants.doubt(name, amount) ** 2
    doubts = {term: math.sqrt(square) for term, square in squares.items()}
    return Prediction(terms, doubts, roofline, path, constants, note)


def split_residual(prediction: Prediction, measured: float) -> dict[str, float]:
    """measured − predicted, in seconds, laid on the terms; the parts sum to the residual.

    With ranges: in proportion to the square of each term's doubt, which is the most likely split
    when the terms' errors are independent. Where a term's constants were not identified, such terms
    alone take it, in proportion to their size. Without ranges: in proportion to the terms. It is a
    suspicion, not a measurement: one number cannot say which of several terms is wrong.
    """
    residual, doubts = measured - float(prediction), prediction.doubts
    open_terms = [term for term in doubts if math.isinf(doubts[term])]
    if open_terms:
        weights = {term: prediction.terms[term] * (term in open_terms) for term in doubts}
    elif any(doubts.values()):
        weights = {term: doubt**2 for term, doubt in doubts.items()}
    else:
        weights = prediction.terms
    total = sum(weights.values())
    if not total:
        raise ValueError("a prediction of 0 s has no term that a residual could be laid on")
    return {term: residual * weight / total for term, weight in weights.items()}
