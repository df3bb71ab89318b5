"""Bytes that operations take, against the formula; the clock's bound, on samples made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from inferlab.engine import kernels, random_model
from inferlab.engine.model import Model
from inferlab.lab.claims import claim
from inferlab.lab.experiments import bytes as moved
from inferlab.lab.experiments import flops
from inferlab.lab.pairs import Paired
from inferlab.lab.probes import read_probe
from inferlab.lab.records import Measurement
from inferlab.lab.traffic import traffic
from inferlab.theory import shapes


def _agrees(model, context=20):
    seen, told = moved.watched(model, context), moved.formula(model, context)
    assert seen.weights == told.weight_bytes
    assert seen.rows == told.op("embed").read_bytes
    assert (seen.kv_read, seen.kv_written) == (told.kv_read, told.kv_written)
    return seen


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("change", [{}, {"tied_head": False}, {"qkv_bias": True, "qk_norm": True}])
def test_a_step_takes_the_bytes_of_the_formula(tiny, dtype, change):
    shape = replace(tiny, **change)
    seen = _agrees(random_model(shape, "cpu", dtype))
    width = {"fp32": 4, "bf16": 2}[dtype]
    assert seen.weights == shape.params_streamed * width
    assert (seen.weights < shape.params * width) == (not shape.tied_head)


@pytest.mark.parametrize("linear", ["plain", "native", "packed"])
@pytest.mark.parametrize("attention", ["sdpa", "grouped"])
def test_whatever_the_kernels_and_layouts(tiny, linear, attention):
    model = random_model(tiny, "cpu", "fp32")
    if linear not in kernels.candidates(model.device, model.dtype)["linear"]:
        pytest.skip("this layout does not exist here")
    table = {
        "linear": dict.fromkeys(kernels.REGIMES, linear),
        "attention": dict.fromkeys(kernels.REGIMES, attention),
    }
    plain = {name: model.weights[name] for name in model.weights}
    _agrees(Model.create(tiny, plain, table=table))


def test_shapes_too_large_to_hold():
    llama = _agrees(flops.skeleton("llama-3-8b"))
    assert llama.weights == 2 * 7_504_924_672
    _agrees(flops.skeleton("qwen3-4b"), 1000)


def test_what_is_done_twice_counts_twice(tiny):
    model = random_model(tiny, "cpu", "fp32")
    write, cache = moved.step(model, 20)
    once, twice = traffic(write, model, cache), traffic(lambda: (write(), write()), model, cache)
    assert (twice.weights, twice.kv_read) == (2 * once.weights, 2 * once.kv_read)
    assert moved.watched(model, 21).kv_read > once.kv_read
    idle = traffic(lambda: torch.ones(3).sum(), model, cache)
    assert idle == type(idle)(0, 0, 0, 0)


def _clocked(times: float, weights: float = 1e9) -> moved.Clocked:
    """A step that lasts as long as reading `times` · N·b, beside a probe of 250 MB at 25 GB/s."""
    ceiling = Measurement.from_samples("ceiling", [0.01] * 11, "s", {}, {})
    lasts = [times * weights / 25e9 * (1 + 0.002 * i) for i in range(-5, 6)]
    step = Measurement.from_samples("step", lasts, "s", {}, {})
    return moved.Clocked("made up", "fp32", weights, Paired(ceiling, step, 250e6, weights))


def test_the_bound_of_the_clock():
    timed = _clocked(1.25)
    assert timed.bandwidth == pytest.approx(25e9)
    assert timed.at_most.value == pytest.approx(1.25)
    assert timed.seconds.value == pytest.approx(0.05)
    assert (timed.predicted(), timed.predicted(2)) == pytest.approx((0.04, 0.08))


@pytest.mark.parametrize(("times", "cases"), [(1.2, 3), (2.2, 2)])
def test_the_clock_is_a_witness_only_where_its_bound_excludes_2n(tiny, times, cases):
    models = [random_model(tiny, "cpu", dtype) for dtype in ("fp32", "bf16")]
    result = claim("bytes-per-step", moved.per_step(models, _clocked(times)), strict=True)
    assert result.verdict == "wrong"
    assert [c.outcomes["ours"] for c in result.cases] == ["agrees"] * cases
    assert not result.missing


def test_a_step_shorter_than_its_weights_take_contradicts_us(tiny):
    models = [random_model(tiny, "cpu", dtype) for dtype in ("fp32", "bf16")]
    result = claim("bytes-per-step", moved.per_step(models, _clocked(0.6)), strict=False)
    assert result.cases[-1].outcomes == {"source": "excluded", "ours": "excluded"}
    assert not result.as_recorded


def test_a_step_that_makes_two_passes_is_seen(tiny, monkeypatch):
    model, once = random_model(tiny, "cpu", "fp32"), moved.decode
    monkeypatch.setattr(moved, "decode", lambda *a: (once(*a), a[1].__dict__.update(lengths=[64]),
                                                     once(*a)))  # fmt: skip
    case = moved.per_step([model], _clocked(1.2))[0]
    assert case.measured == pytest.approx(2)


def test_a_step_is_timed_beside_a_read(tiny):
    model = random_model(tiny, "cpu", "fp32")
    timed = moved.clocked(model, read_probe("cpu", "sum", 2**22), 16, rounds=8, fixed=True)
    assert timed.pair.step.n == 8
    assert timed.weights == model.shape.params * 4
    assert timed.fixed.unit == "s"
    assert moved.product_rate(model, 1, seconds=0.01).unit == "B/s"


def test_the_context_as_heavy_as_the_weights():
    shape = shapes.get("llama-3-8b")
    context = moved.context_as_heavy_as_weights(shape)
    assert context == pytest.approx(2 * 7_504_924_672 / 131072)
    assert moved.context_as_heavy_as_weights(shape, batch=8) == pytest.approx(context / 8)
    assert moved.context_as_heavy_as_weights(shape, "fp8", "bf16") == pytest.approx(
        context / 2, 1e-3
    )
