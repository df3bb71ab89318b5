"""Trials: each tries the regimes of its claim; counts come out, planted falsehoods do not.

What the clock takes is not judged here: `inferlab claims --repeat 20` does that on a quiet machine.
"""

import pytest

from inferlab.lab import ledger
from inferlab.lab.claims import collect
from inferlab.lab.experiments import (
    arithmetic,
    bandwidth,
    batching,
    frozen,
    pace,
    passes,
    phases,
    positions,
    repeats,
    standins,
    trials,
    whole,
)
from inferlab.lab.intervals import Interval

BOOK = ledger.read()
LIGHT = (
    "cache-is-a-major-consumer", "worked-example", "one-dense-product",
    "serving-outweighs-training", "little-arithmetic-per-byte",
)  # fmt: skip
HEAVY = tuple(id for id in trials.counted() if id not in LIGHT)


@pytest.fixture(scope="module")
def tiny():
    return standins.tiny()


def _regimes(cases):
    return [c.regime for c in cases] if isinstance(cases, list) else list(cases)


def _fails(id, plant):
    return not trials.as_foreseen(trials.run(id, plant))


def _every(ids):
    return [(id, plant) for id in ids for plant in trials.TRIALS[id].plants]


def test_each_trial_has_its_claim_and_a_falsehood():
    for id, trial in trials.TRIALS.items():
        assert BOOK[id].regimes, id
        assert trial.plants, id


@pytest.mark.parametrize("id", LIGHT)
def test_a_count_comes_out_as_the_ledger_has_it_and_tries_every_regime(id):
    result = trials.run(id)
    assert trials.as_foreseen(result), repr(result)
    assert not result.missing


@pytest.mark.slow
@pytest.mark.parametrize("id", HEAVY)
def test_a_longer_count_comes_out_too(id):
    result = trials.run(id)
    assert trials.as_foreseen(result), repr(result)
    assert not result.missing


@pytest.mark.parametrize(("id", "plant"), _every(LIGHT))
def test_a_planted_falsehood_is_caught(id, plant):
    assert _fails(id, plant)


@pytest.mark.slow
@pytest.mark.parametrize(("id", "plant"), _every(HEAVY))
def test_a_planted_falsehood_in_a_longer_count_is_caught(id, plant):
    assert _fails(id, plant)


def test_a_planted_count_leaves_the_counter_as_it_was():
    before = arithmetic.flops.one_pass
    arithmetic.per_token("macs")
    assert arithmetic.flops.one_pass is before


@pytest.mark.slow
def test_a_planted_weight_is_put_back(smollm2):
    before = frozen.fingerprints(smollm2)
    assert frozen.forward_only(smollm2, plant="learns") == {"greedy": 1, "sampled": 1}
    assert frozen.fingerprints(smollm2) == before


CLOCKED = {
    "reading-cheap-writing-slow": lambda m: phases.reading_is_cheap(m, 16, 8),
    "prefill-compute-bound": lambda m: phases.prefill_against_compute(m, 16, 4, 8),
    "prefill-sets-ttft": lambda m: phases.first_token(m, 16, 1, 8),
    "cache-avoids-recomputing": lambda m: phases.cache_or_none(m, 16, 8, 8),
    "equal-flops-unequal-time": lambda m: phases.equal_flops(m, 16, 8),
    "decode-is-the-dearer-half": lambda m: phases.dearer_half(m, 16, 2, 8),
    "compute-idle-in-decode": lambda m: bandwidth.idle_arithmetic(m, 8),
    "steady-pace": lambda m: pace.steady_pace(m, m, 8),
    "asymmetry-is-the-whole-story": lambda m: whole.request_and_parts(m, 16, 2, 8),
    "batching-helps": lambda m: batching.throughput(m, 8, 8),
    "one-user-barely-uses-a-gpu": lambda m: batching.one_of_many(m, (4,), 8),
}


@pytest.mark.slow
@pytest.mark.parametrize("id", CLOCKED)
def test_what_the_clock_takes_comes_with_an_interval_for_each_regime(id, tiny):
    cases = CLOCKED[id](tiny)
    wanted = [regime.id for regime in BOOK[id].regimes if regime.needs != "cuda"]
    assert _regimes(cases) == wanted
    values = [c.measured for c in cases] if isinstance(cases, list) else list(cases.values())
    clocks = [r.by or BOOK[id].by for r in BOOK[id].regimes if r.needs != "cuda"]
    assert [isinstance(v, Interval) for v in values] == [by == "clock" for by in clocks]


def test_weights_are_taken_once_and_a_planted_second_pass_shows(tiny):
    once, twice = bandwidth.weights_taken(tiny), bandwidth.weights_taken(tiny, "twice")
    assert twice == pytest.approx(2 * once)
    assert 0.9 < once <= 1


def test_eight_bits_compute_nearly_the_same(tiny):
    exact = standins.reader(tiny, 8)
    exact()
    narrow = bandwidth.eight_bits(tiny)
    ids = standins.ids(tiny, 8)
    full, rounded = (frozen.prefill(m, m.cache(1, 8), ids).float() for m in (tiny, narrow))
    assert (full - rounded).abs().max() < 0.1 * full.abs().max()
    assert (full - rounded).abs().max() > 0


def test_guesses_are_kept_only_where_the_model_agrees(smollm2):
    ids = smollm2.tokenizer.encode(positions.LIST)
    plain = positions.guessed(smollm2, ids, 12, width=0)
    quick = positions.guessed(smollm2, ids, 12, width=6)
    assert quick[0] == plain[0]
    assert (plain[1], quick[1] < plain[1]) == (11, True)


def test_passes_are_those_of_the_engine(tiny):
    assert passes.passes_to_first_token(tiny, 40) == 1
    assert passes.passes_to_first_token(tiny, 40, chunk=16) == 3
    assert passes.answer_passes(tiny, 8, 5) == 4
    assert passes.answer_passes(tiny, 8, 5, "reads-the-last") == 5


def test_a_filled_cache_is_as_long_as_said(tiny):
    cache = standins.filled(tiny, 32, 2)
    assert cache.lengths == [32, 32]
    assert float(cache.k.float().std()) > 0.5


def test_runs_are_counted_and_every_second_has_a_neighbour(monkeypatch):
    beside = []
    real = repeats._neighbour
    monkeypatch.setattr(repeats, "_neighbour", lambda wanted: beside.append(wanted) or real(wanted))
    runs = repeats.repeat("worked-example", 4, busy=True)
    assert beside == [run.busy for run in runs] == [False, True, False, True]
    assert all(run.as_foreseen for run in runs)
    with pytest.raises(ValueError, match="at least one"):
        repeats.repeat("worked-example", 0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: trials.run("worked-exampel"), "near are worked-example"),
        (lambda: trials.run("training-is-paid-once"), "has no trial"),
        (lambda: trials.run("worked-example", "elephant"), "plants macs, not 'elephant'"),
    ],
)
def test_wrong_use_is_answered_in_words(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_results_shown_together_are_each_found_again():
    from inferlab.lab.claim_table import distances, together

    results = [trials.run(id) for id in ("worked-example", "serving-outweighs-training")]
    shown = together(results)
    page = {"cells": [{"outputs": [{"data": {"text/html": shown._repr_html_()}}]}]}
    assert [found["id"] for found in collect(page)] == [r.entry.id for r in results]
    assert "depends" in repr(shown)
    assert distances(results) == []  # one states equalities, the other bounds
    rows = distances([trials.run("two-flops-per-parameter")])
    found = {label: points[0] for label, points in rows}
    assert found["14, short-context"][1] == "agrees"
    assert found["14, long-context"][1] == "excluded"
    assert 1.05 < found["14, long-context"][0].value < 2


def test_what_is_counted_reads_no_clock():
    names = trials.counted()
    assert "worked-example" in names
    assert not {"bytes-per-step", "arithmetic-intensity-explains", "batching-helps"} & set(names)
