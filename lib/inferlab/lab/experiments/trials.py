"""For each claim that can be tested now: its experiment, and the falsehoods planted in it.

A trial takes at most a few seconds on two cores, models made before. It is what
`inferlab claims ID` runs; the notebooks call the same functions with settings of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from inferlab.lab import ledger
from inferlab.lab.claims import Result, claim
from inferlab.lab.experiments import (
    arithmetic,
    bandwidth,
    batching,
    frozen,
    lifetime,
    limits,
    pace,
    passes,
    phases,
    positions,
    whole,
)
from inferlab.lab.verdicts import Case

Cases = Mapping[str, object] | Iterable[Case]


@dataclass(frozen=True)
class Trial:
    """`run(plant="")` gives the cases of a claim; `plants` are the falsehoods it knows."""

    run: Callable[..., Cases]
    plants: tuple[str, ...]


_COUNTS = ("macs", "no-attention")

TRIALS: Mapping[str, Trial] = {
    "forward-passes-only": Trial(frozen.forward_only, ("learns", "gradient")),
    "pure-function-of-tokens": Trial(frozen.same_twice, ("remembers", "one-seed")),
    "prefill-is-one-pass": Trial(passes.prefill_passes, ("chunks", "one-by-one")),
    "one-pass-per-token": Trial(passes.decode_passes, ("reads-the-last", "skips")),
    "each-step-depends-on-the-last": Trial(positions.guesses, ("unverified", "no-guess")),
    "reading-cheap-writing-slow": Trial(phases.reading_is_cheap, ("swapped", "answer-is-read")),
    "prefill-compute-bound": Trial(phases.prefill_against_compute, ("macs", "swapped")),
    "prefill-sets-ttft": Trial(phases.first_token, ("second-token",)),
    "decode-memory-bound": Trial(bandwidth.decode_against_memory, ("both-ways", "swapped")),
    "compute-idle-in-decode": Trial(bandwidth.idle_arithmetic, ("swapped",)),
    "steady-pace": Trial(pace.steady_pace, ("forgets", "nobody", "steep")),
    "cache-avoids-recomputing": Trial(phases.cache_or_none, ("missing-cache",)),
    "cache-is-a-major-consumer": Trial(arithmetic.cache_share, ("one-user",)),
    "two-flops-per-parameter": Trial(arithmetic.per_token, _COUNTS),
    "prefill-flops": Trial(arithmetic.reading, _COUNTS),
    "decode-flops": Trial(arithmetic.writing, _COUNTS),
    "total-flops": Trial(arithmetic.whole, _COUNTS),
    "worked-example": Trial(arithmetic.worked_example, ("macs",)),
    "equal-flops-unequal-time": Trial(phases.equal_flops, ("swapped", "answer-is-read")),
    "bytes-per-step": Trial(bandwidth.bytes_per_step, ("twice", "half")),
    "fewer-bits-help": Trial(bandwidth.fewer_bits, ("same", "swapped")),
    "batching-helps": Trial(batching.throughput, ("one-by-one", "swapped")),
    "one-user-barely-uses-a-gpu": Trial(batching.one_of_many, ("one-by-one",)),
    "serving-outweighs-training": Trial(lifetime.serving_against_training, ("swapped", "one-gpu")),
    "decode-is-the-dearer-half": Trial(phases.dearer_half, ("swapped", "answer-is-read")),
    "one-dense-product": Trial(arithmetic.dense_products, ("no-attention",)),
    "later-positions-do-not-exist": Trial(positions.later_positions, ("same-token", "forgetful")),
    "asymmetry-is-the-whole-story": Trial(
        whole.request_and_parts, ("free-reading", "free-writing", "forgets")
    ),
    "full-pass-every-request": Trial(passes.tokens_passed, ("forgets",)),
    "same-arithmetic-for-life": Trial(frozen.same_arithmetic, ("remembers",)),
    "split-follows-from-autoregression": Trial(
        positions.earlier_positions, ("not-causal", "causal")
    ),
    "cache-changes-nothing": Trial(positions.with_and_without_cache, ("stale",)),
    "positions-read-at-once": Trial(positions.at_once, ("not-causal",)),
    "arithmetic-intensity-explains": Trial(limits.named_limits, ("swapped", "no-ridge")),
    "little-arithmetic-per-byte": Trial(arithmetic.intensity, ("swapped",)),
}


def trial(id: str) -> Trial | None:
    """The trial of a claim; None for one that cannot be tested yet, or at all.

    Raises ValueError, naming claims with a name like it, for a claim that is not in the ledger.
    """
    return TRIALS.get(ledger.read()[id].id)


def run(id: str, plant: str = "", device: str = "cpu") -> Result:
    """The claim, tested by its trial, with a falsehood planted where one is named; never strict.

    Raises ValueError for a claim without a trial, and for a plant that its trial does not know.
    """
    found = trial(id)
    if found is None:
        raise ValueError(f"claim {id!r} has no trial: it is not testable, or not tested yet")
    if plant and plant not in found.plants:
        raise ValueError(f"the trial of {id!r} plants {', '.join(found.plants)}, not {plant!r}")
    cases = found.run(plant=plant) if plant else found.run()
    return claim(id, cases, device=device, strict=False)


def as_foreseen(result: Result) -> bool:
    """Whether verdict and outcomes are those that the ledger expects of the regimes tried."""
    tried = {case.regime.id for case in result.cases}
    regimes = tuple(r for r in result.entry.regimes if r.id in tried)
    return result.verdict == result.entry.expected(regimes) and all(
        case.as_expected for case in result.cases
    )


def counted() -> tuple[str, ...]:
    """The claims whose trial counts and reads no clock, in their order: seconds for all of them."""
    book = ledger.read()
    return tuple(
        id
        for id, entry in book.items()
        if id in TRIALS
        and entry.kind != "limit"  # a limit is timed, also where the share of cases is counted
        and {entry.by, *(r.by or entry.by for r in entry.regimes)} == {"count"}
    )
