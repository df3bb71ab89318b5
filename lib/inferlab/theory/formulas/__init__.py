"""The book's formulas as plain functions of numbers, each with its equation attached.

They are the arithmetic that `counts`, `roofline`, `latency` and `economics` call on what they know
of a model and a machine. `MODULES` is what the book collects its equation pages from.
"""

from __future__ import annotations

from inferlab.theory.formulas import language, money, serving, time, work
from inferlab.theory.formulas.language import attention, perplexity, sequence_probability, softmax
from inferlab.theory.formulas.money import (
    cost_per_token,
    lifetime_break_even,
    margin,
    serving_card,
)
from inferlab.theory.formulas.serving import (
    goodput,
    littles_law,
    speculative_tokens,
    tpot,
    ttft,
)
from inferlab.theory.formulas.time import (
    additive_time,
    arithmetic_intensity,
    critical_batch,
    mbu,
    mfu,
    ridge_point,
    roofline_time,
)
from inferlab.theory.formulas.work import (
    decode_flops,
    experts_touched,
    kv_bytes_per_token,
    prefill_flops,
    step_bytes,
    total_flops,
)

MODULES = (language, work, time, serving, money)

__all__ = [
    "MODULES",
    "additive_time",
    "arithmetic_intensity",
    "attention",
    "cost_per_token",
    "critical_batch",
    "decode_flops",
    "experts_touched",
    "goodput",
    "kv_bytes_per_token",
    "lifetime_break_even",
    "littles_law",
    "margin",
    "mbu",
    "mfu",
    "perplexity",
    "prefill_flops",
    "ridge_point",
    "roofline_time",
    "sequence_probability",
    "serving_card",
    "softmax",
    "speculative_tokens",
    "step_bytes",
    "total_flops",
    "tpot",
    "ttft",
]
