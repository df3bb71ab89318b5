"""The predictor's calibration on a machine whose constants are known, since it is made up."""

from dataclasses import replace

import pytest

from inferlab.engine.load import random_model
from inferlab.lab.experiments import predictor
from inferlab.lab.experiments.predictor import Ceilings, Step
from inferlab.lab.fitting import Row, predicted
from inferlab.theory import roofline
from inferlab.theory.additive import Constants, Fitted

TINY = predictor.base(
    2, name="tiny", d_model=64, n_heads=4, n_kv_heads=2, head_dim=16, d_ff=96, vocab=128
)
TRUE = {
    ("decode", "gemv"): Constants(layer=3e-6, beta=0.7, beta_kv=0.2, phi_attention=0.25,
                                  beta_act=0.5),
    ("decode", "small"): Constants(layer=5e-6, beta=0.9, beta_kv=0.2, phi_attention=0.25, phi=0.6),
    ("decode", "gemm"): Constants(layer=8e-6, beta_kv=0.2, phi_attention=0.25, phi=0.5),
    ("prefill", "gemm"): Constants(layer=8e-6, phi_attention=0.15, phi=0.8),
}  # fmt: skip


def made_up(calls: list | None = None):
    """A timer of a machine that follows TRUE exactly, while its bandwidth drifts by a factor."""

    def time(model, step: Step) -> Row:
        drift = 1 + 0.5 * (len(calls) % 3) if calls is not None else 1.0
        now = Ceilings(1e9 * drift, 20e9)
        machine = Fitted(now, TRUE, causal_block=predictor.KEYS_AT_A_TIME)
        length = {"context": step.length,
                  "prompt": step.length if step.phase == "prefill" else None}  # fmt: skip
        took = roofline.predict(model.shape, machine, step.phase, step.batch, **length)
        row = Row(model.shape, step.phase, float(took), step.batch, **length, machine=now,
                  group=f"{model.shape.name}, {step}")  # fmt: skip
        if calls is not None:
            calls.append(row)
        return row

    return time


@pytest.fixture(scope="module")
def fitted():
    return predictor.calibrated(made_up([]), TINY)[0]


def test_the_constants_of_a_machine_that_drifts_are_found(fitted):
    for key, constants in TRUE.items():
        for name in predictor.FREE.get(key, predictor.FREE["prefill"]):
            true, found = getattr(constants, name), getattr(fitted.constants[key], name)
            assert found == pytest.approx(true, rel=0.02), (key, name)


def test_unseen_shapes_are_predicted(fitted):
    for fields in ({"n_layers": 5}, {"d_model": 128}, {"n_kv_heads": 4}, {"vocab": 512}):
        model = random_model(replace(TINY, name="other", **fields), "cpu", "bf16")
        for result in predictor.tried(fitted, model, time=made_up()):
            assert abs(result.error) < 0.01, (fields, str(result.row.label))
            assert sum(result.prediction.terms.values()) == pytest.approx(float(result.prediction))


def test_without_each_rows_own_ceilings_the_fit_fails():
    """Planted: the drift forgotten. What a row was timed beside must go into the fit."""
    _, rows = predictor.calibrated(made_up([]), TINY)
    still = Ceilings(1.5e9, 20e9)
    blind = predictor.fit([replace(r, machine=still) for r in rows], still, predictor.FREE,
                          causal_block=predictor.KEYS_AT_A_TIME)  # fmt: skip
    worst = max(abs(float(predicted(blind, r)) / r.seconds - 1) for r in rows)
    assert worst > 0.1


def test_a_prompt_is_counted_as_the_kernel_computes_it(fitted):
    """Planted: exact causal halves, where the kernel computes whole blocks of keys."""
    exact = replace(fitted, causal_block=1)
    long = {"phase": "prefill", "prompt": 512, "batch": 1}
    whole, half = (roofline.predict(TINY, f, **long).terms["attention"] for f in (fitted, exact))
    assert whole / half == pytest.approx(512 / 256.5, rel=0.01)


def test_summary_is_of_absolute_errors():
    row = Row(TINY, "decode", 1.0, 1, 32)
    results = [
        predictor.Tried(row, roofline.Prediction({"fixed": t}, {"fixed": 0.0}, t, "gemv", None))
        for t in (0.9, 1.1, 1.3)
    ]
    found = predictor.summary(results)["decode"]
    assert found["n"] == 3
    assert found["median"] == pytest.approx(0.1)
    assert found["bias"] == pytest.approx(0.1)


def test_real_steps_are_timed_and_leave_the_cache_as_it_was():
    model = random_model(TINY, "cpu", "bf16")
    time = predictor.timer("cpu", "bf16", seconds=0.0)
    for step in (Step("decode", 2, 8), Step("prefill", 1, 16)):
        row = time(model, step)
        assert row.seconds > 0
        assert row.machine.bandwidth > 1e8
        assert (row.phase, row.batch, row.context) == (step.phase, step.batch, step.length)


def test_thirteen_shapes_of_a_third_of_a_billion_parameters():
    shapes = predictor.unseen()
    assert len(shapes) == 13
    assert all(shape.params >= 0.3e9 and shape != predictor.base() for shape in shapes)


def test_a_slow_machine_leaves_the_longest_steps_out():
    def left(rate):
        machine = predictor.Ceilings(1e11, rate)
        return predictor.within(predictor.QUICK, predictor.base(), machine, "fp32")

    assert left(1e12) == predictor.QUICK
    slow = left(1.2e11)
    assert {s.length for s in predictor.QUICK if s not in slow} == {512}
    assert [s for s in slow if s.phase == "decode"] == [
        s for s in predictor.QUICK if s.phase == "decode"
    ]
    assert left(1e6) == predictor.QUICK  # none is short enough: all of them
