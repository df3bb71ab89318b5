"""What a finding says, and that each experiment holds the right times against each other.

Times are planted or come from a clock that tests move; none is asserted of this machine.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inferlab.engine import random_model
from inferlab.engine.kvcache import KVCache
from inferlab.lab.experiments import mistakes, mistakes_clock, mistakes_kernels, mistakes_passes
from inferlab.lab.experiments.mistakes import HARMLESS, MISLEADS, UNDECIDED, Finding
from inferlab.lab.intervals import Interval
from inferlab.theory import counts, hardware, roofline, shapes

WOBBLE = np.array([1.0, 1.02, 0.98, 1.01, 0.99, 1.03, 0.97, 1.0])


def finding(low, value, high, **more):
    return Finding("ttft", "anywhere", 1.0, 2.0, "s", Interval(value, low, high, n=8), **more)


@pytest.fixture(scope="module")
def model(tiny_shape):
    return random_model(tiny_shape, "cpu", "fp32")


@pytest.fixture(scope="module")
def tiny_shape():
    return replace(
        shapes.get("smollm2-135m"), name="tiny", n_layers=2, d_model=64, n_heads=4, n_kv_heads=2,
        head_dim=16, d_ff=96, vocab=128, max_context=1024,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "plain", "at_most"),
    [
        ((1.2, 1.5, 1.9), MISLEADS, MISLEADS),
        ((0.95, 1.0, 1.05), HARMLESS, HARMLESS),
        ((1.05, 1.2, 1.3), UNDECIDED, UNDECIDED),
        ((0.3, 0.4, 0.5), MISLEADS, HARMLESS),
        ((0.85, 0.95, 1.0), UNDECIDED, HARMLESS),
        ((0.5, 1.0, 2.0), UNDECIDED, UNDECIDED),
    ],
)
def test_an_outcome_needs_the_whole_interval(ends, plain, at_most):
    low, value, high = ends
    assert finding(low, value, high).outcome == plain
    assert finding(low, value, high, at_most=True).outcome == at_most


def test_a_statement_is_one_of_the_list():
    with pytest.raises(ValueError, match="no statement 'ttf'"):
        Finding("ttf", "", 1, 1, "", Interval.exact(1))


def test_the_worst_is_the_farthest_off_in_either_direction_and_measured():
    below, above = finding(0.1, 0.2, 0.3), finding(2, 3, 4)
    assert mistakes.worst([below, above]) is below
    held = finding(0.1, 0.2, 0.3, at_most=True)
    assert mistakes.worst([held, above]) is above
    with pytest.raises(ValueError, match="none of these"):
        mistakes.worst([replace(above, elsewhere="predicted")])


def test_a_prediction_is_shown_as_one():
    shown = repr(
        mistakes.show([finding(2, 3, 4), finding(2, 3, 4, elsewhere="predicted")], "a", "b")
    )
    assert shown.count(MISLEADS) == 1
    assert shown.count("predicted") == 1
    rows = mistakes.data([[finding(2, 3, 4)], []])
    assert [row["times off"] for row in rows] == [3]


def planted(bandwidth=50e9, rate=1e12, share=0.8):
    """Passes of a machine whose decode reaches `share` of the bandwidth, prefill of the rate."""
    shape = shapes.get("qwen2.5-0.5b")
    step = counts.step(shape, [counts.Sequence(1, 15)])
    read = counts.step(shape, [counts.Sequence(300)])
    times = {
        "decode": step.bytes_streamed / bandwidth / share, "prefill": read.flops / rate / share
    }  # fmt: skip
    return mistakes_passes.Passes(
        shape, "bf16", tuple(1e8 / bandwidth * WOBBLE), 1e8, tuple(1e9 / rate * WOBBLE), 1e9,
        {16: tuple(1.5 * times["decode"] * WOBBLE), 300: tuple(times["prefill"] * WOBBLE)},
        {16: tuple(times["decode"] * WOBBLE), 300: tuple(times["decode"] * WOBBLE)},
    )  # fmt: skip


def test_mfu_promises_what_the_nearer_ceiling_does_not_allow():
    passes = planted()
    decode, prefill = mistakes_passes.mfu(passes)
    step = counts.step(passes.shape, [counts.Sequence(1, 15)])
    took = step.bytes_streamed / 50e9 / 0.8
    assert decode.found == pytest.approx(1 / 0.8)
    assert decode.believed == pytest.approx(1e12 / (step.flops / took))
    assert decode.off.value == pytest.approx(decode.believed / decode.found)
    assert prefill.off.value == pytest.approx(1)
    assert (decode.outcome, prefill.outcome) == (MISLEADS, HARMLESS)
    swapped = replace(passes, read=passes.product, read_bytes=passes.product_flops)
    assert mistakes_passes.mfu(swapped)[0].off.value != pytest.approx(decode.off.value)


def test_the_critical_batch_is_that_of_the_two_ceilings():
    ceilings, whole = mistakes_passes.critical_batch(planted())
    assert ceilings.found == pytest.approx(20)  # 1e12 / 50e9 · 2 / 2
    assert ceilings.off.value == pytest.approx(15)
    assert whole.off.value == pytest.approx(whole.found / whole.believed)
    wide = mistakes_passes.critical_batch(replace(planted(), dtype="fp32"))[0]
    assert wide.found == pytest.approx(40)


def test_without_a_cache_and_a_prompt_against_an_answer():
    passes = planted()
    first = mistakes_passes.no_cache(passes)[0]
    assert first.off.value == pytest.approx(1.5)
    read = mistakes_passes.prompt_and_answer(passes, (16,), answer=8)[0]
    assert read.off.value == pytest.approx(1.5 / 8)
    assert (first.outcome, read.outcome) == (MISLEADS, HARMLESS)


def test_predictions_are_the_plain_roofline():
    h100, llama = hardware.get("h100-sxm"), shapes.get("llama-3-8b")
    near, far, prompt = mistakes_passes.predicted(llama, h100, (16, 4096))
    assert all(one.elsewhere == "predicted" for one in (near, far, prompt))
    assert near.off.value == pytest.approx(1, abs=0.01)
    assert far.off.value > 10
    assert prompt.found == pytest.approx(roofline.prefill_time(llama, h100, prompt=512))
    assert prompt.off.value < 1


def test_others_measured_that_512_tokens_are_read_sooner_than_8_are_written():
    faster_transformer, llama_cpp = mistakes_passes.published()
    assert faster_transformer.found == pytest.approx(63.17e-3)
    assert faster_transformer.believed == pytest.approx(8 * 22.0e-3)
    assert llama_cpp.off.value == pytest.approx((512 / 9382) / (8 / 54.84))
    assert {one.elsewhere for one in (faster_transformer, llama_cpp)} == {"published"}


def test_every_pass_is_timed_in_every_round(model, monkeypatch):
    monkeypatch.setattr(mistakes_passes, "read_ceiling", small_read)
    monkeypatch.setitem(mistakes_passes._PRODUCT, "cpu", 64)
    passes = mistakes_passes.time_passes(model, (4, 9), rounds=8)
    assert sorted(passes.reading) == sorted(passes.writing) == [4, 9]
    every = [passes.read, passes.product, *passes.reading.values(), *passes.writing.values()]
    assert {len(times) for times in every} == {8}
    assert passes.product_flops == 2 * 64**3


def test_contexts_beyond_the_model_are_left_out(model):
    found = mistakes_passes.attention(model, (4, 32, 5000), rounds=8)
    assert [one.regime for one in found] == ["32 tokens of context"]


def test_the_longer_part_and_the_sum(model, monkeypatch):
    times = {"products": 3 * WOBBLE, ("whole", 4): 5 * WOBBLE, ("attention", 4): 2 * WOBBLE}
    monkeypatch.setattr(mistakes_passes, "interleave", lambda *_, **__: times)
    (longer,), (summed,) = mistakes_passes.max_of_totals(model, 2, (4,), rounds=8)
    assert longer.off.value == pytest.approx(5 / 3)
    assert summed.off.value == pytest.approx(1)


def test_attention_alone_reads_a_cache_full_of_values(tiny_shape):
    cache = KVCache(tiny_shape, 2, 300)
    mistakes_passes.attention_alone(cache, tiny_shape.n_heads, "grouped")()
    for half in (cache.k, cache.v):
        assert float(half.std()) == pytest.approx(1, abs=0.05)
        assert bool((half[0] == half[1]).all())
    assert cache.lengths == [0, 0]


def test_fewer_bytes():
    times = {"fp32": 4 * WOBBLE, "bf16": 2 * WOBBLE, "fp16": 8 * WOBBLE, "int8": 3 * WOBBLE}
    products = mistakes_kernels.Products(1, "bf16", {1: times})
    half = {one.regime: one for one in mistakes_kernels.half_bytes(products)}
    assert half["fp32 to bf16, 1 row"].off.value == pytest.approx(1)
    assert half["fp32 to fp16, 1 row"].off.value == pytest.approx(4)
    assert half["bf16 to int8, 1 row"].off.value == pytest.approx(3)
    (slow,) = mistakes_kernels.quantization_slows(products)
    assert slow.off.value == pytest.approx(2 / 3)  # int8 is slower here: the statement holds
    assert slow.outcome == HARMLESS
    fast = mistakes_kernels.Products(1, "bf16", {1: {**times, "int8": WOBBLE}})
    assert mistakes_kernels.quantization_slows(fast)[0].outcome == MISLEADS


def test_products_in_every_type_that_is_here():
    products = mistakes_kernels.time_products("cpu", (1, 16), rounds=8, weights=2**19)
    assert products.weights == 2**19
    for times in products.times.values():
        assert set(times) == {"fp32", "bf16", "fp16", "int8"}


def test_grouped_heads_alone_and_in_a_step():
    found = mistakes_kernels.grouped_heads("cpu", ("fp32",), 8, 2, context=16, layers=2)
    assert {one.regime for one in found} == {"a whole step, fp32", "attention alone, fp32"}
    assert {one.believed for one in found} == {4.0}


def test_a_buffer_in_the_cache_is_held_against_the_whole_set(monkeypatch):
    monkeypatch.setattr(mistakes_kernels, "read_ceiling", small_read)
    monkeypatch.setattr(mistakes_kernels, "_SWEPT", 2**18)
    (small,) = mistakes_kernels.in_cache("cpu", (2**16,), whole=2**20)
    assert small.off.value == pytest.approx(small.believed / small.found, rel=0.5)
    assert small.unit == "B/s"


def test_zeros_say_where_they_were_timed(monkeypatch):
    monkeypatch.setattr(mistakes_kernels, "read_ceiling", small_read)
    found = mistakes_kernels.zeros("cpu", "fp32", rounds=8)
    assert all(one.regime.endswith(", cpu") for one in found)


def test_a_request_in_line_waits_for_those_before_it(model, monkeypatch):
    """With a clock that each prefill moves by 1 s, TTFT is the place in line."""
    now = [0.0]
    real = mistakes_clock.prefill

    def slow(*args):
        now[0] += 1.0
        return real(*args)

    monkeypatch.setattr(mistakes_clock, "prefill", slow)
    monkeypatch.setattr(
        mistakes_clock, "timeline", lambda steps, where: _timeline(steps, lambda: now[0])
    )
    found = mistakes_clock.ttft(model, "x", (0, 2), 8, encode=lambda _: [1, 2, 3])
    assert [one.off.value for one in found] == [1.0, 3.0]
    assert [one.outcome for one in found] == [HARMLESS, MISLEADS]


def test_a_stall_shows_in_the_longest_gap(model, monkeypatch):
    now = [0.0]
    real_generate, real_prefill = mistakes_clock.generate, mistakes_clock.prefill

    def steps(*args, **more):
        for step in real_generate(*args, **more):
            now[0] += 1.0
            yield step

    def other(*args):
        now[0] += 9.0
        return real_prefill(*args)

    monkeypatch.setattr(mistakes_clock, "generate", steps)
    monkeypatch.setattr(mistakes_clock, "prefill", other)
    monkeypatch.setattr(
        mistakes_clock, "timeline", lambda steps, where: _timeline(steps, lambda: now[0])
    )
    stalled, alone = mistakes_clock.mean_itl(model, prompt=6, answer=10, rounds=8)
    assert stalled.found == 10.0
    assert stalled.believed == pytest.approx(2.0)  # (9 · 1 + 9) / 9
    assert alone.off.value == 1.0


def test_tpot_leaves_the_first_token_out(model, monkeypatch):
    monkeypatch.setattr(mistakes_clock, "timeline", lambda *_: (None, line))
    line = mistakes_clock.Timeline(0.0, (10.0, 11.0, 12.0, 13.0))
    short, long = mistakes_clock.tpot(model, (4,), (2, 4), rounds=8)
    assert (short.found, long.found) == (1.0, 1.0)
    assert (short.believed, long.believed) == (5.5, 3.25)


def test_the_first_run_is_the_first(model, monkeypatch):
    took = iter([5.0, 1.0, 1.0, 1.0, 1.0, 1.0] * 16)
    monkeypatch.setattr(mistakes_clock, "seconds", lambda *_: next(took))
    fresh, known = mistakes_clock.first_run(model, rounds=8)
    assert fresh.off.value == known.off.value == 5.0
    assert (fresh.believed, fresh.found) == (5.0, 1.0)


def test_a_cpu_has_nothing_to_wait_for():
    found = mistakes_clock.no_wait("cpu")
    assert not found
    assert "takes a GPU" in str(found)


def small_read(device, kind, nbytes=None):
    from inferlab.lab.probes import read_probe

    return read_probe(device, kind, min(nbytes or 2**20, 2**20))


def _timeline(steps, clock):
    from inferlab.lab import meters

    return meters.timeline(steps, "cpu", clock=clock)
