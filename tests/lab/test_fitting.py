"""Fitting the additive predictor: known constants come back, and what is not known is said."""

from dataclasses import replace

import numpy as np
import pytest

from inferlab.lab import fitting
from inferlab.lab.fitting import Row, errors, fit, leave_out, nnls
from inferlab.theory import hardware, roofline, shapes
from inferlab.theory.additive import Constants, Fitted

GPU = hardware.get("a100-80gb-sxm")
TRUE = {
    ("decode", "gemv"): Constants(layer=3e-5, beta=0.85, phi=0.5),
    ("decode", "small"): Constants(layer=6e-5, beta=0.7, phi=0.4),
    ("decode", "gemm"): Constants(layer=2e-5, beta=0.8, phi=0.6),
    ("prefill", "gemm"): Constants(layer=9e-5, beta=0.6, phi=0.7),
}
NAMES = ("smollm2-360m", "llama-3.2-1b", "qwen2.5-1.5b", "llama-3.2-3b", "qwen3-8b", "llama-2-13b")


def made(noise=0.0, names=NAMES, batches=(1, 4, 32, 128), true=TRUE, seed=0):
    """Rows that a machine with the true constants would give, with log-normal noise."""
    machine, random = Fitted(GPU, true), np.random.default_rng(seed)
    rows = []
    for name in names:
        for batch in batches:
            for length in (64, 2048):
                for phase in ("decode", "prefill"):
                    row = Row(shapes.get(name), phase, 1.0, batch, length, length)
                    took = roofline.predict(row.shape, machine, **row.arguments())
                    spread = float(np.exp(noise * random.standard_normal()))
                    rows.append(replace(row, seconds=float(took) * spread))
    return rows


def test_exact_rows_give_the_constants_back():
    found = fit(made(), GPU, resamples=20)
    assert set(found.constants) == set(TRUE)
    for key, true in TRUE.items():
        got = found.constants[key]
        assert got.layer == pytest.approx(true.layer, rel=1e-6)
        assert got.beta == pytest.approx(true.beta, rel=1e-6)
        if key[1] != "gemv":  # with one row hardly anything is multiplied
            assert got.phi == pytest.approx(true.phi, rel=1e-5)
    assert np.abs(errors(found, made())).max() < 1e-9


def test_noisy_rows_give_them_back_within_the_interval():
    rows = made(noise=0.03)
    found = fit(rows, GPU)
    inside = []
    for key, true in TRUE.items():
        for name in ("layer", "beta", "phi"):
            span = found.constants[key].ranges[name]
            inside.append(span.low <= getattr(true, name) <= span.high)
            assert span.low <= getattr(found.constants[key], name) <= span.high
    assert sum(inside) >= 10  # of 12, at a nominal 95 % from six models
    assert found.constants["prefill", "gemm"].phi == pytest.approx(0.7, rel=0.05)
    assert np.median(np.abs(errors(found, rows))) < 0.03
    # A planted fault, the same rows in another phase or type, does not fit.
    swapped = [replace(r, phase="decode" if r.phase == "prefill" else "prefill") for r in rows]
    assert np.median(np.abs(errors(found, [r for r in swapped if r.batch > 16]))) > 0.5
    halved = [replace(r, weight_dtype="fp8") for r in rows if r.phase == "decode"]
    assert np.median(np.abs(errors(found, halved))) > 0.15


def test_the_same_rows_give_the_same_fit():
    rows = made(noise=0.05)
    assert fit(rows, GPU).constants == fit(rows, GPU).constants
    first, again = (fit(rows, GPU).constants["decode", "gemv"].ranges for _ in range(2))
    assert first == again


def test_what_the_rows_cannot_tell_is_said():
    one_depth = made(names=("llama-2-7b", "llama-3-8b"), batches=(32, 128))
    free = {"decode": ("beta", "step", "layer", "phi", "link")}
    decode = fit(one_depth, GPU, free, resamples=20).constants["decode", "gemm"]
    assert "not told apart from step" in decode.ranges["layer"].why
    assert (decode.layer, decode.ranges["step"].identified) == (0.0, True)
    assert "no row has anything" in decode.ranges["link"].why
    # Reversed, the other takes the same time.
    free = {"decode": ("beta", "layer", "step", "phi")}
    other = fit(one_depth, GPU, free, resamples=0).constants["decode", "gemm"]
    assert 32 * other.layer == pytest.approx(decode.step, rel=1e-6)
    # One model at one batch and length: reading it and a fixed time are one column.
    single = [r for r in made(names=("llama-2-7b",), batches=(1,)) if r.context == 64]
    found = fit(single, GPU, resamples=20).constants["decode", "gemv"]
    assert "not told apart from layer" in found.ranges["beta"].why
    assert found.beta == 1.0


def test_an_interval_as_wide_as_the_answer_is_not_an_answer():
    rows = [r for r in made(noise=0.1, batches=(2,)) if r.phase == "decode"]
    found = fit(rows, GPU, {"decode": ("layer", "beta", "phi")}).constants["decode", "small"]
    assert found.ranges["beta"].identified
    told = fit(
        rows, GPU, {"decode": ("layer", "beta", "phi_attention", "beta_act")}, ceilings=False
    )
    ranges = told.constants["decode", "small"].ranges
    assert any("moves a row's time" in span.why for span in ranges.values())


def test_shares_stay_at_or_below_the_ceiling_unless_it_is_a_measured_one():
    fast = {"decode": Constants(layer=1e-5, beta=1.25, phi=0.5)}
    rows = [r for r in made(true={**fast, "prefill": Constants()}) if r.phase == "decode"]
    held = fit(rows, GPU, by_path=False, resamples=0).constants["decode", "any"]
    assert held.beta == 1.0
    free = fit(rows, GPU, by_path=False, ceilings=False, resamples=0).constants["decode", "any"]
    assert free.beta == pytest.approx(1.25)


def test_a_paths_rows_fit_that_path_alone():
    found = fit([r for r in made() if r.path == "small"], GPU, resamples=0)
    assert list(found.constants) == [("decode", "small")]
    with pytest.raises(ValueError, match="no constants for"):
        roofline.predict(shapes.get("llama-2-7b"), found, batch=64)
    with pytest.raises(ValueError, match="no rows"):
        fit([], GPU)


def test_leaving_a_model_out():
    rows = made(noise=0.02)
    held = leave_out(rows, lambda seen: fit(seen, GPU, resamples=0))
    assert len(held) == len(rows)
    off = np.array([predicted / row.seconds - 1 for row, predicted in held])
    assert np.median(np.abs(off)) < 0.03
    with pytest.raises(ValueError, match="another to fit"):
        leave_out([r for r in rows if r.cluster == "qwen3-8b"], lambda seen: GPU)


def test_nnls_against_every_choice_of_columns():
    random = np.random.default_rng(3)
    for _ in range(40):
        design, target = random.standard_normal((8, 4)), random.standard_normal(8)
        best = np.inf
        for choice in range(16):
            picked = [i for i in range(4) if choice >> i & 1]
            x = np.zeros(4)
            if picked:
                x[picked] = np.linalg.lstsq(design[:, picked], target, rcond=None)[0]
            if (x >= 0).all():
                best = min(best, float(np.sum((design @ x - target) ** 2)))
        x = nnls(design, target)
        assert (x >= 0).all()
        assert np.sum((design @ x - target) ** 2) == pytest.approx(best)


@pytest.mark.parametrize("wrong", [{"phase": "both"}, {"seconds": 0.0}])
def test_rows_that_measure_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="step"):
        Row(**{"shape": shapes.get("llama-2-7b"), "phase": "decode", "seconds": 1.0, **wrong})


def test_what_is_fitted_by_default_is_the_plain_formula():
    assert set(fitting.FREE["decode"]) == set(fitting.FREE["prefill"]) == {"layer", "beta", "phi"}
