"""One request: its work by count, its floor, and a run on a tiny model."""

from __future__ import annotations

import dataclasses

import pytest

from inferlab.engine import random_model
from inferlab.lab.experiments import request
from inferlab.theory import counts, hardware, roofline, shapes

SHAPE = shapes.ModelShape(
    name="tiny", n_layers=2, d_model=64, n_heads=4, n_kv_heads=2, head_dim=16, d_ff=96, vocab=128
)


def test_the_work_of_a_request_is_its_passes():
    work = request.work(SHAPE, 10, 5)
    assert work.passes == 5  # one prefill, which yields the first token, and four more
    assert work.prefill.flops == counts.step(SHAPE, [counts.Sequence(10, 0)]).flops
    assert [s.kv_read for s in work.decode] == [
        (10 + i + 1) * SHAPE.kv_bytes_per_token("bf16") for i in range(4)
    ]


def test_the_floor_is_the_roofline_added_up():
    work, gpu = request.work(SHAPE, 10, 3), hardware.get("h100-sxm")
    line = work.floor(gpu)
    assert line.ttft == pytest.approx(roofline.step_time(work.prefill, gpu, "bf16"))
    assert line.itl == pytest.approx([roofline.step_time(s, gpu, "bf16") for s in work.decode])
    later = work.floor(gpu, fixed=1.0)
    assert later.e2e == pytest.approx(line.e2e + 3)


@pytest.mark.parametrize(("prompt", "answer"), [(0, 5), (5, 0)])
def test_no_request_without_tokens(prompt, answer):
    with pytest.raises(ValueError, match="at least 1"):
        request.work(SHAPE, prompt, answer)


def test_a_run_on_a_tiny_model():
    model = random_model(SHAPE, "cpu", "fp32")
    seen = []
    run = request.run(model, [1, 2, 3, 4], 6, rounds=8, progress=seen.append, waits=lambda: None)
    assert run.disturbed == 0
    assert seen == list(range(1, 9))
    assert len(run.tokens) == 6
    assert run.passes == 6
    assert all(len(line.tokens) == 6 for line in run.rounds)
    assert run.tpot.samples == tuple(line.tpot for line in run.rounds)
    assert run.gaps.n == 8 * 5
    ends = sorted(line.e2e for line in run.rounds)
    assert run.typical.e2e == ends[4]
    work = request.work(SHAPE, 4, 6, "fp32")
    used = run.read_efficiency(work)
    moved = sum(s.bytes_streamed for s in work.decode) / 5
    pairs = [
        moved / t / bw for t, bw in zip(run.tpot.samples, run.ceilings.read.samples, strict=True)
    ]
    assert min(pairs) <= used.value <= max(pairs)
    assert 0 < used.value < 1
    with pytest.raises(ValueError, match="fp32 only"):
        run.ceilings.peak_flops("bf16")


@pytest.mark.parametrize(("disturbed", "tried", "left"), [(3, 11, 0), (12, 16, 4)])
def test_a_disturbed_round_is_run_again_and_told_when_it_stays(disturbed, tried, left):
    """`waits` is asked before and after a round: of the first ones, a core was away throughout."""
    asked = []

    def waits():
        asked.append(None)
        before, after = len(asked) % 2, len(asked) // 2
        return 0.0 if before or after > disturbed else 1e6

    model = random_model(SHAPE, "cpu", "fp32")
    run = request.run(model, [1, 2, 3, 4], 3, rounds=8, waits=waits)
    assert len(asked) == 2 * tried
    assert len(run.rounds) == run.ceilings.read.n == run.fixed.n == 8
    assert run.disturbed == left


def test_one_token_has_no_pace():
    with pytest.raises(ValueError, match="at least two"):
        request.run(random_model(SHAPE, "cpu", "fp32"), [1, 2], 1, rounds=8)


def test_passes_are_counted_where_they_are_made():
    model = random_model(SHAPE, "cpu", "fp32")
    assert request.count_passes(model, [1, 2, 3], 7) == (1, 6, 7)


def test_a_hollow_model_has_the_operations_and_not_the_weights():
    model = random_model("smollm2-135m", "cpu", "bf16")
    empty = request.hollow(model)
    same = ("n_layers", "n_heads", "n_kv_heads", "qkv_bias", "qk_norm", "tied_head", "gated_mlp")
    assert all(getattr(empty.shape, f) == getattr(model.shape, f) for f in same)
    assert empty.table == model.table
    assert set(empty.weights) == set(model.weights)
    assert empty.nbytes < model.nbytes / 50
    qwen = dataclasses.replace(SHAPE, qkv_bias=True, qk_norm=True)
    assert request.hollow(random_model(qwen, "cpu", "fp32")).shape.qk_norm
