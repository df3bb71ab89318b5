"""The engine on a real GPU: the tokens of the CPU, the logits within the rounding of the dtype.

Skipped where there is no GPU; run with `pytest tests/gpu` where there is one.
"""

from __future__ import annotations

import pytest
import torch

from inferlab.engine import decode, generate, load, prefill
from inferlab.engine.device import facts, pick_dtype
from inferlab.lab import calibrate, timeline

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@pytest.fixture(scope="module")
def on_gpu():
    return load("smollm2-135m", device="cuda", dtype="fp32")


@pytest.fixture(scope="module")
def prompt(on_gpu) -> list[int]:
    return on_gpu.tokenizer.chat([{"role": "user", "content": "Why is the sky blue?"}])


def share_of_range(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = a.float().cpu(), b.float().cpu()
    return float((a - b).abs().max() / (b.max() - b.min()))


def test_fp32_equals_the_cpu(on_gpu, smollm2, prompt):
    ours = prefill(on_gpu, on_gpu.cache(1, 64), prompt)
    theirs = prefill(smollm2, smollm2.cache(1, 64), prompt)
    assert share_of_range(ours, theirs) < 1e-4
    written = [s.tokens[0] for s in generate(on_gpu, prompt, 40)]
    assert written == [s.tokens[0] for s in generate(smollm2, prompt, 40)]


def test_one_pass_is_many_steps_and_a_batch_its_sequences(on_gpu, prompt):
    whole = prefill(on_gpu, on_gpu.cache(1, 64), prompt, head="all")[0]
    cache = on_gpu.cache(1, 64)
    steps = torch.stack([decode(on_gpu, cache, [t])[0] for t in prompt])
    assert share_of_range(steps, whole) < 1e-4
    short = prompt[:7]
    both = prefill(on_gpu, on_gpu.cache(2, 64), [prompt, short])
    assert share_of_range(both[1], prefill(on_gpu, on_gpu.cache(1, 64), short)[0]) < 1e-4


def test_half_precision_is_near_fp32(on_gpu, prompt):
    dtype = pick_dtype("auto", torch.device("cuda"), facts())
    half = load("smollm2-135m", device="cuda", dtype=dtype)
    exact = prefill(on_gpu, on_gpu.cache(1, 64), prompt)
    near = prefill(half, half.cache(1, 64), prompt)
    bound = {torch.bfloat16: 0.03, torch.float16: 0.005}[dtype]
    assert share_of_range(near, exact) < bound


def test_ceilings_and_times_are_of_the_gpu(on_gpu, prompt):
    machine = calibrate("cuda")
    _, line = timeline(generate(on_gpu, prompt, 20), "cuda")
    assert machine.bandwidth > 1e11  # any GPU reads faster than 100 GB/s
    assert on_gpu.weights.nbytes / line.tpot < machine.bandwidth
