"""Random weights: every tensor of the shape, values like those of real models, nothing else."""

import math

import pytest
import torch

from inferlab.engine.weights.random import DRAWN, STD, random_weights
from inferlab.theory import shapes

CPU = torch.device("cpu")


@pytest.fixture
def shape():
    return shapes.ModelShape(
        name="small", n_layers=2, d_model=256, n_heads=4, n_kv_heads=2, head_dim=32, d_ff=512,
        vocab=1000, architecture="qwen3", qk_norm=True, qkv_bias=True,
    )  # fmt: skip


def test_every_tensor_of_the_shape_and_no_other(shape):
    weights = random_weights(shape, CPU, torch.bfloat16)
    assert {n: tuple(w.shape) for n, w in weights.items()} == shapes.weight_shapes(shape)
    assert {w.dtype for w in weights.values()} == {torch.bfloat16}
    assert sum(w.numel() for w in weights.values()) == shape.params


def test_the_values_are_those_of_a_model_that_has_just_been_made(shape):
    for name, weight in random_weights(shape, CPU, torch.float32, seed=3).items():
        if name.endswith("norm.weight"):
            assert bool((weight == 1).all()), name
            continue
        n = weight.numel()
        # five standard errors of the mean and of the standard deviation of n normal numbers
        assert abs(weight.mean().item()) < 5 * STD / math.sqrt(n), name
        assert abs(weight.std().item() / STD - 1) < 5 / math.sqrt(2 * n), name
        assert torch.unique(weight).numel() > 0.9 * min(n, 1000), name


def test_the_seed_decides(shape):
    a, b = (random_weights(shape, CPU, torch.bfloat16, seed=1) for _ in range(2))
    other = random_weights(shape, CPU, torch.bfloat16, seed=2)
    state = torch.get_rng_state()
    random_weights(shape, CPU, torch.bfloat16)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["output.weight"], other["output.weight"])
    assert torch.equal(state, torch.get_rng_state())  # the reader's own generator is left alone
    assert not torch.equal(a["blk.0.ffn_up.weight"], a["blk.1.ffn_up.weight"])


def test_a_matrix_larger_than_what_is_drawn_has_no_row_twice():
    shape = shapes.ModelShape(
        name="wide", n_layers=1, d_model=1024, n_heads=8, n_kv_heads=8, head_dim=128, d_ff=3072,
        vocab=64, architecture="llama",
    )  # fmt: skip
    weights = random_weights(shape, CPU, torch.float32)
    gate = weights["blk.0.ffn_gate.weight"]
    assert gate.numel() > 2 * DRAWN
    assert torch.unique(gate, dim=0).shape == gate.shape
    assert torch.equal(gate.view(-1)[:1000], gate.view(-1)[DRAWN : DRAWN + 1000])
    assert not torch.equal(gate, weights["blk.0.ffn_up.weight"])


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "opt-13b", "mpt-7b"])
def test_a_shape_the_engine_does_not_compute(name):
    with pytest.raises(ValueError, match=rf"{name} is a model of architecture '\w+'"):
        random_weights(shapes.get(name), CPU, torch.bfloat16)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_the_device_nothing_passes_through_the_cpu(shape):
    device = torch.device("cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    weights = random_weights(shape, device, torch.bfloat16)
    assert {w.device.type for w in weights.values()} == {"cuda"}
    peak = torch.cuda.max_memory_allocated() - before
    drawn = 2 * DRAWN
    assert peak < 2 * shape.params + drawn + 512 * len(weights) + 1024  # and the allocator's own
