"""FLOPs against closed forms and against theory.counts; memory that is there when it is used."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from inferlab.engine import kernels
from inferlab.engine.generate import decode, prefill
from inferlab.engine.load import random_model
from inferlab.engine.model import Model
from inferlab.lab.counters import Unavailable, flops, memory
from inferlab.theory import counts
from inferlab.theory.counts import Sequence

B, H, K, S, C, D, DV = 2, 8, 4, 16, 24, 32, 32
FULL = 2 * B * H * S * C * (D + DV)


def _attend(**how):
    q, k, v = torch.randn(B, H, S, D), torch.randn(B, K, C, D), torch.randn(B, K, C, DV)
    return lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **how)


def test_attention_on_a_cpu_counts_its_full_square_with_query_heads():
    assert flops(_attend()).total == FULL
    assert flops(_attend(attn_mask=torch.zeros(S, C))).total == FULL


def test_the_causal_half_is_not_taken_off():
    q = torch.randn(B, H, S, D)
    causal = flops(lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True))
    assert causal.total == 2 * B * H * S * S * 2 * D


def test_torch_alone_counts_nothing_there_which_is_why_there_is_a_formula():
    with FlopCounterMode(display=False) as counter:
        _attend()()
    assert counter.get_total_flops() in (0, FULL)  # 0 in torch 2.13; repaired some day


def test_matrix_times_vector_and_dot():
    w, x = torch.randn(64, 32), torch.randn(32)
    assert flops(lambda: w @ x).total == 2 * 64 * 32
    assert flops(lambda: torch.addmv(torch.ones(64), w, x)).total == 2 * 64 * 32
    assert flops(lambda: torch.dot(x, x)).total == 2 * 32


def test_narrow_weights():
    a = torch.randint(-8, 8, (32, 64), dtype=torch.int8)
    b = torch.randint(-8, 8, (64, 48), dtype=torch.int8)
    assert flops(lambda: torch._int_mm(a, b)).total == 2 * 32 * 64 * 48
    w = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
        torch.randint(0, 16, (64, 128), dtype=torch.int32), 1
    )
    x, scales = torch.randn(5, 128).bfloat16(), torch.randn(4, 64, 2).bfloat16()
    product = torch.ops.aten._weight_int4pack_mm_for_cpu
    assert flops(lambda: product(x, w, 32, scales)).total == 2 * 5 * 128 * 64


def test_what_has_no_formula_is_named():
    x = torch.randn(4, 8)
    found = flops(lambda: F.silu(x) @ x.T)
    assert found.total == 2 * 4 * 8 * 4
    assert found.by_op == {"aten.mm": 256}
    assert "aten.silu" in found.uncounted
    assert "aten.mm" not in found.uncounted


@pytest.mark.parametrize("linear", ["plain", "native", "packed"])
@pytest.mark.parametrize("attention", ["plain", "sdpa", "grouped"])
def test_a_step_of_the_engine_is_what_the_theory_counts(tiny, linear, attention):
    model = random_model(tiny, device="cpu", dtype="fp32")
    possible = kernels.candidates(model.device, model.dtype)
    if linear not in possible["linear"]:
        pytest.skip(f"{linear} products do not exist here: {possible}")
    table = {
        "linear": dict.fromkeys(kernels.REGIMES, linear),
        "attention": dict.fromkeys(kernels.REGIMES, attention),
    }
    plain = {name: model.weights[name] for name in model.weights}
    model = Model.create(tiny, plain, table=table)
    cache, prompt = model.cache(max_tokens=64), list(range(20))
    read = flops(lambda: prefill(model, cache, prompt))
    assert read.total == counts.step(tiny, [Sequence(20, 0)], causal_half=False).matmul_flops
    written = flops(lambda: decode(model, cache, [5]))
    expected = counts.step(tiny, [Sequence(1, 20)])
    assert written.total == expected.matmul_flops
    one_short = counts.step(tiny, [Sequence(1, 19)])
    assert written.total != one_short.matmul_flops  # context + 1 positions, not context
    wider = counts.step(replace(tiny, n_kv_heads=4), [Sequence(20, 0)], causal_half=False)
    assert read.total != wider.matmul_flops  # K and V have their own number of heads


def test_memory_in_use_is_seen():
    before = memory().resident
    held = torch.ones(2**24)  # 64 MiB, written
    now = memory()
    assert now.resident - before > 0.8 * held.nbytes
    assert now.peak_resident >= now.resident


def test_what_torch_does_not_count_on_a_cpu_is_said():
    now = memory("cpu")
    for value in (now.allocated, now.reserved, now.peak_allocated):
        assert isinstance(value, Unavailable)
        assert not value
        assert str(value).startswith("not available here, because")
