"""Statements settled by a count: the counts against closed forms, published figures and faults."""

from __future__ import annotations

import pytest
import torch

from inferlab.engine import kernels
from inferlab.lab.experiments import counting
from inferlab.theory import counts, shapes


def test_weights_once_and_an_embedding_not_at_all():
    (llama,) = counting.twice_the_weights(["llama-3-8b"])
    assert llama.off == pytest.approx(2 * 8_030_261_248 / 7_504_924_672)
    dense, mixtral = counting.resident_is_read(["llama-3-8b"], ["mixtral-8x7b"])
    assert dense.off == pytest.approx(llama.off / 2)
    assert mixtral.off == pytest.approx(46.703 / 12.748, rel=1e-3)


@pytest.mark.parametrize(
    ("rule", "name", "off"),
    [
        ("query heads", "llama-3-8b", 4), ("query heads", "llama-3-70b", 8),
        ("query heads", "llama-2-7b", 1), ("K only", "llama-3-8b", 0.5),
        ("hidden ÷ heads as head_dim", "qwen3-4b", 80 / 128),
        ("hidden ÷ heads as head_dim", "llama-3-8b", 1), ("2 · latent", "deepseek-v3", 2),
    ],
)  # fmt: skip
def test_rules_for_the_cache(rule, name, off):
    (found,) = counting.cache_rule(rule, [name])
    assert found.off == pytest.approx(off)


@pytest.mark.parametrize(
    ("name", "published"),
    # arXiv 2505.09343, table 1, decimal kilobytes
    [("deepseek-v3", 70_272), ("qwen2.5-72b", 327_680), ("llama-3.1-405b", 516_096)],
)
def test_caches_as_published(name, published):
    (found,) = counting.cache_rule("query heads", [name])
    assert found.counted == published


def test_tensors_of_a_cache_are_what_the_shape_says():
    for name in ("smollm2-135m", "llama-3-70b", "qwen3-4b"):
        assert counting.cache_held(shapes.get(name)) == shapes.get(name).kv_per_token


def _exact(q, k, v, mask, causal):
    """Causal attention that multiplies no masked pair at all, a query at a time."""
    rows = [
        kernels.attention_plain(q[:, :, t : t + 1], k[:, :, : t + 1], v[:, :, : t + 1], None, False)
        for t in range(q.shape[2])
    ]
    return torch.cat(rows, 2)


def test_a_kernel_that_skips_is_told_from_one_that_does_not():
    tokens = 64
    plain = counting.pairs_computed(kernels.attention_plain, tokens, 1)
    assert plain == [tokens] * tokens
    skipping = counting.pairs_computed(_exact, tokens, 1)
    assert skipping == list(range(1, tokens + 1))
    (said,) = counting.causal_half(kernels.attention_plain, [64])
    assert said.off == pytest.approx(65 / 128)
    with pytest.raises(ValueError, match="no multiple"):
        counting.pairs_computed(_exact, 65)


def test_a_fused_kernel_computes_no_less_than_needed_and_no_more_than_all():
    tokens = 1024
    computed = counting.pairs_computed(kernels.attention_sdpa, tokens, 16)
    assert all(t + 1 - 16 < n <= tokens for t, n in enumerate(computed))


def test_experts_drawn_and_expected():
    for experts, active, tokens in ((8, 2, 4), (256, 8, 32)):
        expected = counts.experts_touched(experts, active, tokens)
        assert counting.experts_drawn(experts, active, tokens) == pytest.approx(expected, rel=0.02)
        one_more = counts.experts_touched(experts, active, tokens + tokens // 4)
        assert counting.experts_drawn(experts, active, tokens) != pytest.approx(one_more, rel=0.02)
    assert counting.experts_drawn(8, 2, 1) == 2
    with pytest.raises(ValueError, match="makes no sense"):
        counting.experts_drawn(4, 5, 1)


def test_experts_read_grow_with_the_batch():
    one, many = counting.experts_read("deepseek-v3", (1, 128))
    assert one.off == 1
    assert many.off < 0.1
    dense = counting.experts_read("llama-3-8b", (1, 128))
    assert [c.off for c in dense] == [1, 1]


def test_a_product_is_a_multiply_and_an_add():
    assert counting.operations_of_a_product(2, 3, 5) == (30, 24)
    multiplied, added = counting.operations_of_a_product(4, 3, 200)
    assert (multiplied + added) / multiplied == pytest.approx(2, rel=0.01)


def test_memory_sold_and_reported():
    h100, a100 = counting.sold_memory([("h100-sxm", 80), ("a100-80gb-sxm", 80)])
    assert a100.counted == 80 * 2**30
    assert 80e9 < h100.counted < 80 * 2**30


def test_sparse_peaks_are_twice_the_dense_ones():
    for found in counting.sparse_peaks():
        assert found.off == pytest.approx(2, rel=0.015)


def test_weights_that_would_fit_a_sparse_peak():
    dense = {"a": torch.randn(16, 8), "norm": torch.zeros(8)}
    assert counting.prunable(dense) == 0
    half = dense["a"].clone()
    half[:8, ::2] = 0  # two of four in half of the rows
    assert counting.prunable({"a": half}) == 0.5
    half[8:, 0] = 0  # one of four is not enough
    assert counting.prunable({"a": half}) == 0.5
