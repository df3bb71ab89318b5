"""Reading against writing, on a tiny model: every token is timed, and the shares add up."""

from __future__ import annotations

import pytest
import torch

from inferlab.engine import random_model
from inferlab.lab.experiments import next_token, reading
from inferlab.theory import shapes

SHAPE = shapes.ModelShape(
    name="tiny", n_layers=2, d_model=64, n_heads=4, n_kv_heads=2, head_dim=16, d_ff=96, vocab=128
)


@pytest.fixture(scope="module")
def model():
    return random_model(SHAPE, "cpu", "fp32")


def test_a_sweep_has_a_point_per_prompt(model):
    seen = []
    points = reading.sweep(model, (4, 32), answer=4, rounds=8, progress=seen.append)
    assert [p.prompt for p in points] == [4, 32]
    assert seen == list(range(9))  # the first warms up
    for p in points:
        assert p.read.n == p.written.n == 8
        pairs = [w / r for w, r in zip(p.written.samples, p.read.samples, strict=True)]
        assert min(pairs) <= p.ratio.value <= max(pairs)
        assert p.read.conditions["prompt"] == p.prompt


def test_the_parts_of_an_answer_make_the_whole(model):
    tokens, parts = 41, 8
    same = reading.equal(model, tokens, parts)
    assert same.read.n == same.written.n == parts
    assert len(same.timeline_seconds) == tokens
    decode = same.timeline_seconds[-1] - same.timeline_seconds[0]
    # each part is scaled to the whole answer, so their mean is the time of the whole
    assert sum(same.written.samples) / parts == pytest.approx(decode)


def test_ids_jump_about_and_stay_inside(model):
    ids = reading.ids(300, 128)
    assert min(ids) >= 0
    assert max(ids) < 128
    assert len(set(ids)) > 60
    assert ids == reading.ids(300, 128)


def test_one_pass_gives_every_factor(smollm2):
    ids = smollm2.tokenizer.encode("The capital of France is Paris.")
    whole = next_token.log_probabilities(smollm2, ids)
    single = next_token.log_probabilities(smollm2, ids, one_pass=False)
    assert torch.allclose(whole, single, atol=1e-4)
    wrong = next_token.log_probabilities(smollm2, ids[::-1])
    assert not torch.allclose(wrong.flip(0), whole, atol=1e-1)


def test_draws_follow_the_distribution(smollm2):
    ids = smollm2.tokenizer.encode("The capital of France is")
    rows = next_token.candidates(smollm2, ids, 4000, top=5)
    p = next_token.distribution(smollm2, ids)
    assert float(p.sum()) == pytest.approx(1, abs=1e-5)
    assert [r.probability for r in rows] == sorted((r.probability for r in rows), reverse=True)
    for r in rows:
        error = (r.probability * (1 - r.probability) / 4000) ** 0.5
        assert abs(r.share - r.probability) < 4.5 * error
    cold = next_token.distribution(smollm2, ids, temperature=0.25)
    assert next_token.entropy(cold) < next_token.entropy(p)
    assert next_token.entropy(torch.full((8,), 0.125)) == pytest.approx(3)
