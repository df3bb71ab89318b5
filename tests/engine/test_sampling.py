"""Sampling is a pure function of logits and a generator."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inferlab.engine.sampling import greedy, probabilities, sample

LOGITS = torch.log(torch.tensor([[0.5, 0.25, 0.15, 0.1]]))


def test_probabilities_by_hand():
    assert probabilities(LOGITS)[0].tolist() == pytest.approx([0.5, 0.25, 0.15, 0.1])
    hot = [p**0.5 for p in (0.5, 0.25, 0.15, 0.1)]
    expected = [h / sum(hot) for h in hot]
    assert probabilities(LOGITS, temperature=2)[0].tolist() == pytest.approx(expected)
    assert probabilities(LOGITS, top_k=2)[0].tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert probabilities(LOGITS, top_p=0.6)[0].tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert probabilities(LOGITS, top_p=0.5)[0].tolist() == pytest.approx([1, 0, 0, 0])
    kept = probabilities(LOGITS, min_p=0.3)[0].tolist()
    assert kept == pytest.approx([0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0])


@given(
    st.lists(st.floats(-30, 30), min_size=2, max_size=20), st.floats(0.1, 5),
    st.integers(1, 25), st.floats(0.01, 1), st.floats(0.01, 1),
)  # fmt: skip
def test_laws(logits, temperature, top_k, top_p, min_p):
    logits = torch.tensor([logits])
    p = probabilities(logits, temperature, top_k, top_p, min_p)[0]
    assert p.sum().item() == pytest.approx(1, abs=1e-5)
    assert (p >= 0).all()
    assert p[logits.argmax()] == p.max()
    distinct = len(set(logits[0].tolist())) == logits.shape[1]
    assert not distinct or (p > 0).sum() <= top_k


def test_draws_follow_the_probabilities():
    """20,000 draws: each share within four standard errors of its probability."""
    n = 20000
    draws = sample(LOGITS.expand(n, 4), generator=torch.Generator().manual_seed(0))
    for token, p in enumerate((0.5, 0.25, 0.15, 0.1)):
        share = (draws == token).float().mean().item()
        assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / n)


def test_greedy_and_temperature_zero():
    assert greedy(LOGITS).tolist() == sample(LOGITS, temperature=0).tolist() == [0]


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1}, {"temperature": math.nan}, {"top_k": 0}, {"top_p": 0},
              {"top_p": 1.5}, {"min_p": -0.1}],
)  # fmt: skip
def test_a_value_outside_its_range_is_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        sample(LOGITS, **wrong)
