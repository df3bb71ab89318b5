"""FLOPs of passes that ran, against the formula, against 2N, and against planted faults."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inferlab.engine import random_model
from inferlab.engine.generate import generate
from inferlab.lab.claims import claim
from inferlab.lab.counters import flops as counter
from inferlab.lab.experiments import flops
from inferlab.theory import counts, shapes


@pytest.fixture(scope="module")
def model(tiny):
    return random_model(tiny, "cpu", "fp32")


def test_a_skeleton_counts_what_the_model_runs(model, tiny):
    bare = flops.skeleton(tiny)
    for new, past in ((1, 0), (20, 0), (1, 33)):
        ran = flops.parts(flops.one_pass(model, new, past))
        assert flops.parts(flops.one_pass(bare, new, past)) == ran
        assert flops.theory_parts(flops.exact(tiny, new, past)) == ran
        assert ran.attention > 0


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3-8b", "qwen3-4b", "qwen2.5-0.5b"])
def test_published_shapes_run_the_flops_of_the_formula(name):
    bare, shape = flops.skeleton(name), shapes.get(name)
    for new, past in ((64, 0), (1, 1000)):
        assert flops.one_pass(bare, new, past).total == flops.exact(shape, new, past).matmul_flops


def test_an_answer_is_counted_as_if_every_pass_were(model, tiny):
    cache = model.cache(1, 64)
    whole = counter(lambda: list(generate(model, list(range(10)), 9, cache=cache))).total
    read = flops.one_pass(model, 10).total
    assert cache.passes == 9
    assert flops.answer_flops(model, 10, 9) == whole - read == flops.exact_answer(tiny, 10, 9)
    assert flops.answer_flops(model, 10, 1) == 0
    assert flops.answer_flops(model, 10, 2) == flops.one_pass(model, 1, 10).total


def test_a_window_is_not_taken_for_a_line():
    windowed = replace(shapes.get("llama-2-7b"), n_layers=1, sliding_window=8)
    with pytest.raises(ValueError, match="sees at most 8"):
        flops.context_where_attention_adds(windowed, 0.1)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_the_context_at_which_attention_adds_a_share(share):
    shape = shapes.get("llama-2-7b")
    context = flops.context_where_attention_adds(shape, share)
    found = flops.theory_parts(flops.exact(shape, 1, round(context)))
    assert found.attention / found.linear == pytest.approx(share, rel=1e-3)


@pytest.mark.slow
def test_the_claims_come_out_as_foreseen(smollm2):
    for id, cases in (
        ("two-flops-per-parameter", flops.per_token(smollm2)),
        ("prefill-flops", flops.reading(smollm2)),
        ("decode-flops", flops.writing(smollm2)),
        ("total-flops", flops.whole(smollm2)),
        ("worked-example", flops.worked_example()),
    ):
        result = claim(id, cases, strict=False)
        assert result.verdict == result.entry.foreseen, result
        assert not result.missing
        assert all(case.as_expected for case in result.cases), result


FAULTS = {
    "KV with query heads": lambda s: replace(s, n_kv_heads=s.n_heads),
    "MLP without its gate": lambda s: replace(s, gated_mlp=False),
    "a layer lost": lambda s: replace(s, n_layers=s.n_layers - 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_formula_is_excluded(smollm2, fault, monkeypatch):
    right = counts.step
    monkeypatch.setattr(counts, "step", lambda shape, *a, **k: right(FAULTS[fault](shape), *a, **k))
    result = claim("two-flops-per-parameter", flops.per_token(smollm2, (64,)), strict=False)
    assert result.cases[0].outcomes["ours"] == "excluded"


@pytest.mark.parametrize("fault", [1, 3])
def test_one_or_three_flops_per_parameter_are_excluded(smollm2, fault):
    shape = smollm2.shape
    counted = flops.one_pass(smollm2, 1, 16).total / (2 * shape.params) * fault / 2
    ours = flops.exact(shape, 1, 16).matmul_flops / (2 * shape.params)
    case = flops.Case("short-context", counted, ours=ours)
    result = claim("two-flops-per-parameter", [case], strict=False)
    assert set(result.cases[0].outcomes.values()) == {"excluded"}
