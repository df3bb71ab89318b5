"""The additive predictor: its terms, its bound, worked answers of others, and what it refuses."""

import copy
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlab.theory import additive, hardware, roofline, shapes
from inferlab.theory.additive import TERMS, Constants, Fitted, Range

GPU = hardware.get("h100-sxm")
LLAMA = shapes.get("llama-3-8b")
REAL = Constants(layer=2e-5, step=1e-3, beta=0.8, beta_kv=0.9, beta_act=0.6, phi=0.7,
                 phi_attention=0.3, allreduce=2e-5, link=1.5e11)  # fmt: skip


class Chip:
    """A machine of two numbers, as an author writes them."""

    def __init__(self, peak, bandwidth):
        self.peak, self.bandwidth = peak, bandwidth

    def peak_flops(self, dtype):
        return self.peak


def test_a_decode_step_by_hand():
    made = roofline.predict(LLAMA, GPU, batch=4, context=999, constants=REAL)
    head = 128256 * 4096
    layers = LLAMA.params_streamed - head
    assert made.terms["head"] == pytest.approx(
        2 * head / (0.8 * 3.35e12) + 4 * 2 * head / (0.7 * 9.89e14)
    )
    assert made.terms["kv"] == pytest.approx(4 * 1001 * 131072 / (0.9 * 3.35e12))
    # Scores and values are 4 H D_h (c + 1) FLOP a layer, and softmax 6 H (c + 1) - 2 H more.
    attention = 4 * 32 * (32 * (4 * 128 + 6) * 1000 - 2 * 32)
    assert made.terms["attention"] == pytest.approx(attention / (0.3 * 9.89e14))
    assert made.terms["fixed"] == pytest.approx(32 * 2e-5 + 1e-3)
    assert made.terms["weights"] == pytest.approx(
        2 * layers / (0.8 * 3.35e12) + 4 * 2 * layers / (0.7 * 9.89e14), rel=1e-3
    )
    assert made.terms["communication"] == 0
    # Planted: KV with query heads is four times the bytes.
    mha = replace(LLAMA, n_kv_heads=32)
    wrong = roofline.predict(mha, GPU, batch=4, context=999, constants=REAL)
    assert wrong.terms["kv"] == pytest.approx(4 * made.terms["kv"])


def test_it_is_a_number_made_of_its_terms():
    made = roofline.predict(LLAMA, GPU, constants=REAL)
    assert tuple(made.terms) == TERMS
    assert float(made) == sum(made.terms.values())
    assert made / 2 == float(made) / 2
    assert copy.deepcopy(made).terms == made.terms
    assert made.roofline == roofline.decode_time(LLAMA, GPU, context=1024)
    assert (made.path, made.note) == ("gemv", "constants as passed")


def test_without_constants_it_says_that_they_are_ideal():
    made = roofline.predict(LLAMA, GPU, context=0)
    assert "no constants were given" in made.note
    count = roofline.step_costs(LLAMA, GPU, context=0)[0]
    assert float(made) == pytest.approx(
        sum(v for (_, name), v in count.items() if name in ("beta", "beta_kv", "phi"))
        + count["attention", "phi_attention"]
    )


def test_constants_are_of_a_phase_and_a_path():
    gemv, small = Constants(beta=0.9), Constants(beta=0.5)
    machine = Fitted(GPU, {("decode", "gemv"): gemv, ("decode", "small"): small, "prefill": REAL})
    assert roofline.predict(LLAMA, machine).constants == gemv
    assert roofline.predict(LLAMA, machine, batch=8).constants == small
    assert roofline.predict(LLAMA, machine, phase="prefill", prompt=7).constants == REAL
    with pytest.raises(ValueError, match=r"no constants for \(decode, gemm\)"):
        roofline.predict(LLAMA, machine, batch=16)
    with pytest.raises(ValueError, match="keys are"):
        Fitted(GPU, {("decode", "huge"): gemv})


@pytest.mark.parametrize(("rows", "path"), [(1, "gemv"), (2, "small"), (15, "small"), (16, "gemm")])
def test_paths_are_those_of_the_engine(rows, path):
    kernels = pytest.importorskip("inferlab.engine.kernels")
    assert additive.path_of(rows) == path == kernels.regime(rows)


SHARE = st.floats(0.05, 1.0)
FIXED = st.floats(0.0, 1e-3)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["llama-3-8b", "mixtral-8x7b", "opt-125m", "deepseek-v3", "mistral-7b"]),
    phase=st.sampled_from(["decode", "prefill"]),
    batch=st.integers(1, 64),
    length=st.integers(1, 4000),
    weights=st.sampled_from(["fp16", "fp8", "int4"]),
    n=st.sampled_from([1, 2, 8]),
    shares=st.tuples(SHARE, SHARE, SHARE, SHARE),
    fixed=st.tuples(FIXED, FIXED),
)
def test_never_faster_than_the_roofline(name, phase, batch, length, weights, n, shares, fixed):
    constants = Constants(
        layer=fixed[0], allreduce=fixed[1], beta=shares[0], beta_kv=shares[1], phi=shares[2],
        phi_attention=shares[3],
    )  # fmt: skip
    made = roofline.predict(
        shapes.get(name), GPU, phase, batch, length, weight_dtype=weights, n_gpus=n,
        dtype="fp8" if weights == "fp8" else None, head_dtype="fp16", constants=constants,
    )  # fmt: skip
    assert made >= made.roofline * (1 - 1e-12)
    assert all(seconds >= 0 for seconds in made.terms.values())
    assert float(made) == sum(made.terms.values())


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(16, 200), context=st.integers(0, 3000), more=st.integers(1, 500),
    phase=st.sampled_from(["decode", "prefill"]),
)  # fmt: skip
def test_monotone_in_context_and_batch_within_a_path(batch, context, more, phase):
    def at(batch, length):
        return roofline.predict(LLAMA, GPU, phase, batch, length, constants=REAL)

    context += phase == "prefill"
    assert at(batch, context) < at(batch, context + more)
    assert at(batch, context) < at(batch + more, context)


def test_more_gpus_divide_the_work_and_talk():
    one = roofline.predict(LLAMA, GPU, batch=2, constants=REAL)
    two = roofline.predict(LLAMA, GPU, batch=2, constants=REAL, n_gpus=2)
    for term in ("weights", "kv", "attention", "head"):
        assert two.terms[term] == pytest.approx(one.terms[term] / 2)
    # 64 all-reduces of 2 tokens of 4096 x 2 bytes, each 2 (2 - 1) / 2 times through the link.
    assert two.terms["communication"] == pytest.approx(64 * (2e-5 + 2 * 4096 * 2 / 1.5e11))
    # 16 GPUs share 8 KV heads: each head is read twice.
    many = roofline.predict(LLAMA, GPU, batch=2, constants=REAL, n_gpus=16)
    assert many.terms["kv"] == pytest.approx(one.terms["kv"] / 8)
    with pytest.raises(ValueError, match="at least one machine"):
        roofline.predict(LLAMA, GPU, n_gpus=0)


def test_fp8_attention_and_head_compute_at_their_own_peak():
    wide = roofline.predict(LLAMA, GPU, "prefill", prompt=512, weight_dtype="fp8", dtype="fp8",
                            head_dtype="fp16")  # fmt: skip
    same = roofline.predict(LLAMA, GPU, "prefill", prompt=512, weight_dtype="fp16")
    assert wide.terms["attention"] == pytest.approx(same.terms["attention"])
    assert wide.terms["head"] == pytest.approx(same.terms["head"])
    assert wide.terms["weights"] == pytest.approx(same.terms["weights"] / 2, rel=1e-2)


def test_a_residual_is_laid_where_the_doubt_is():
    plain = roofline.predict(LLAMA, GPU, constants=Constants(beta=0.8))
    parts = plain.split_residual(float(plain) * 1.5)
    assert sum(parts.values()) == pytest.approx(float(plain) / 2)
    assert parts["weights"] == pytest.approx(plain.terms["weights"] / 2)
    doubted = Constants(layer=3e-5, ranges={"layer": Range(2e-5, 4e-5)})
    parts = additive.split_residual(roofline.predict(LLAMA, GPU, constants=doubted), 0.0)
    assert parts["fixed"] == sum(parts.values()) < 0
    span = {"phi": Range(0.1, 1, "not told apart"), "beta": Range(0.7, 0.9)}
    unknown = Constants(beta=0.8, phi=0.7, ranges={**span, "beta_kv": Range(0.1, 1.0)})
    made = roofline.predict(LLAMA, GPU, "prefill", prompt=100, constants=unknown)
    assert made.doubts["attention"] == math.inf  # phi_attention is phi's
    parts = made.split_residual(float(made) + 3.0)
    assert sum(parts.values()) == pytest.approx(3.0)
    assert parts["weights"] / parts["head"] == made.terms["weights"] / made.terms["head"]
    assert parts["kv"] == parts["fixed"] == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"beta": 0.0}, "above 0"), ({"phi": -1}, "above 0"), ({"layer": -1e-6}, "zero or more"),
     ({"step": math.inf}, "zero or more")],
)  # fmt: skip
def test_impossible_constants_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Constants(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"phase": "write"}, {"batch": 0}, {"phase": "prefill", "prompt": 0}]
)
def test_impossible_steps_are_refused(wrong):
    with pytest.raises(ValueError, match="step|row"):
        roofline.predict(LLAMA, GPU, **wrong)


@pytest.mark.parametrize(("batch", "published"), [(4, 2.5e-3), (256, 21e-3)])
def test_30b_in_int8_on_16_tpu_v5e(batch, published):
    """How to Scale Your Model, part 7, worked question: 30 G parameters in int8, 100 kB of KV per
    token, 8,192 tokens, 16 TPU v5e of 1.97e14 FLOP/s (bf16) and 8.1e11 B/s: 2.5 and 21 ms.

    The author adds the KV cache's time to the slower of reading and multiplying the weights.
    """
    chip = Chip(1.97e14, 8.1e11)
    read, moved = 30e9 / (16 * chip.bandwidth), batch * 8192 * 100e3 / (16 * chip.bandwidth)
    multiply = 2 * batch * 30e9 / (16 * chip.peak)
    theirs = max(read, multiply) + moved
    assert theirs == pytest.approx(published, rel=0.03)
    amounts = {("weights", "beta"): read, ("weights", "phi"): multiply, ("kv", "beta_kv"): moved}
    plain = max(multiply, read + moved)
    hidden = {**amounts, ("weights", "beta" if multiply > read else "phi"): 0.0}
    assert additive.price(hidden, Constants(), plain, "gemm") == pytest.approx(theirs)
    # The plain roofline hides more, the additive model with nothing hidden less.
    assert plain <= theirs <= additive.price(amounts, Constants(), plain, "gemm")
    if batch == 256:
        assert plain < 0.9 * published
