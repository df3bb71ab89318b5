"""Fast twins equal plain twins; the table is checked; the process-wide switch is put back."""

from __future__ import annotations

import math

import pytest
import torch

from inferlab.engine import kernels
from inferlab.theory.shapes import ModelShape, RopeScaling

CPU = torch.device("cpu")
SHAPE = ModelShape(
    name="s", n_layers=1, d_model=64, n_heads=4, n_kv_heads=2, head_dim=16, d_ff=8, vocab=8
)


def randn(*size, dtype=torch.float32, seed=0):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_linear_twins(rows, bias, dtype):
    kinds = set(kernels.candidates(CPU, dtype)["linear"])
    weight, b = randn(96, 64, dtype=dtype), randn(96, dtype=dtype, seed=1) if bias else None
    linear = kernels.Linear(weight, b, kinds)
    x = randn(1, rows, 64, dtype=dtype, seed=2)
    exact = x.double() @ weight.double().T + (b.double() if bias else 0)
    scale = (x.double().abs() @ weight.double().abs().T).max()
    # a sum of 64 products rounds by at most 64 ulp of the sum of magnitudes, bf16 stores 2^-9
    bound = float(scale) * (64 * 2**-24 + (2**-8 if dtype == torch.bfloat16 else 0))
    for kind in kinds:
        with kernels.switches(kind):
            off = (linear(x, kind).double() - exact).abs().max()
        assert off <= bound, kind
        assert torch.equal(linear.weight, weight)
    if bias:
        unbiased = kernels.Linear(weight, None, kinds)
        assert (unbiased(x, "plain").double() - exact).abs().max() > bound


@pytest.mark.parametrize("kind", ["sdpa", "grouped"])
@pytest.mark.parametrize("case", ["causal", "one", "mask", "ragged one"])
def test_attention_twins(kind, case):
    new, total = {"causal": (9, 9), "one": (1, 9), "mask": (4, 9), "ragged one": (1, 9)}[case]
    q, k, v = randn(2, 6, new, 8), randn(2, 2, total, 8, seed=1), randn(2, 2, total, 8, seed=2)
    mask = kernels.causal_mask(new, total, CPU)[None, None] if case == "mask" else None
    if case == "ragged one":
        mask = (torch.arange(9) <= torch.tensor([[8], [3]]))[:, None, None]
    causal = case == "causal"
    plain = kernels.attention_plain(q, k, v, mask, causal)
    fast = kernels.ATTENTION[kind](q, k, v, mask, causal)
    assert torch.allclose(fast, plain, atol=2e-6)
    if case in ("mask", "ragged one"):
        unmasked = kernels.ATTENTION[kind](q, k, v, None, False)
        assert not torch.allclose(unmasked, plain, atol=1e-3)


def test_attention_is_the_equation():
    """One query, two keys, by hand: weights softmax(q·k/√E)."""
    q = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2)
    k = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).view(1, 1, 2, 2)
    v = torch.tensor([[10.0, 0.0], [0.0, 10.0]]).view(1, 1, 2, 2)
    first = math.exp(1 / math.sqrt(2)) / (math.exp(1 / math.sqrt(2)) + 1)
    expected = torch.tensor([10 * first, 10 * (1 - first)])
    for attend in kernels.ATTENTION.values():
        assert torch.allclose(attend(q, k, v, None, False).flatten(), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 15])
@pytest.mark.parametrize("kind", ["fused", "row"])
def test_norm_twins(dtype, rows, kind):
    x, w = randn(1, rows, 64, dtype=dtype), randn(64, dtype=dtype, seed=1)
    a, b = kernels.NORM[kind](x, w, 1e-5), kernels.rms_norm_plain(x, w, 1e-5)
    assert torch.allclose(a.float(), b.float(), rtol=2**-7 if dtype == torch.bfloat16 else 1e-5)
    assert not torch.allclose(
        kernels.rms_norm(x * 1e-3, w, 1e-5).float(), kernels.rms_norm(x * 1e-3, w, 1e-6).float()
    )


def test_rope_twins_and_their_law():
    inverse = kernels.inverse_frequencies(SHAPE)
    cos, sin = kernels.rope_angles(inverse, torch.arange(10)[None], torch.float32)
    x = randn(1, 10, 3, 16)
    turned = kernels.rope(x, cos, sin)
    assert torch.allclose(turned, kernels.rope_plain(x, cos, sin), atol=1e-6)
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1), atol=1e-5)
    # the product of a query and a key depends on the distance of their positions alone
    q, k = x[:, :1, :1].expand(1, 10, 1, 16), x[:, 1:2, :1].expand(1, 10, 1, 16)
    q, k = kernels.rope(q, cos, sin), kernels.rope(k, cos, sin)
    near = [(q[0, i, 0] @ k[0, i + 2, 0]).item() for i in range(8)]
    assert max(near) - min(near) < 1e-4
    assert abs((q[0, 0, 0] @ k[0, 5, 0]).item() - near[0]) > 1e-3


def test_values_pass_through_the_rotation_untouched():
    """q, k and v go through `rope` in one piece; the angle of a value head is zero."""
    inverse = kernels.inverse_frequencies(SHAPE)
    angles = kernels.rope_angles(inverse, torch.arange(10)[None], torch.bfloat16)
    x = torch.randn(1, 10, 6, SHAPE.head_dim).bfloat16()
    turned = kernels.rope(x, *kernels.with_still_heads(*angles, 4, 2))
    assert torch.equal(turned[:, :, :4], kernels.rope(x[:, :, :4], *angles))
    assert torch.equal(turned[:, :, 4:], x[:, :, 4:])


def test_rope_scaling():
    plain = kernels.inverse_frequencies(SHAPE)
    assert plain[0] == 1
    assert plain[-1].item() == pytest.approx(10000 ** (-14 / 16))
    factors = torch.linspace(1, 8, 8)
    assert torch.equal(kernels.inverse_frequencies(SHAPE, factors), plain / factors)
    scaling = RopeScaling("llama3", 8.0, 1.0, 4.0, 64)
    scaled = kernels._scaled(plain, scaling)
    waves = 2 * math.pi / plain
    assert torch.equal(scaled[waves < 64 / 4], plain[waves < 64 / 4])
    assert torch.equal(scaled[waves > 64], plain[waves > 64] / 8)
    between = (waves > 16) & (waves < 64)
    assert between.any()
    assert ((scaled < plain) & (scaled > plain / 8))[between].all()
    assert torch.equal(kernels._scaled(plain, RopeScaling("linear", 4.0)), plain / 4)


def test_causal_mask_lets_a_token_see_itself_and_what_is_before():
    assert kernels.causal_mask(2, 4, CPU).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]


def test_the_switch_is_put_back_even_after_an_error():
    assert torch._C._get_mkldnn_enabled()
    for kind, inside in (("native", False), ("packed", True), ("plain", True)):
        with kernels.switches(kind):
            assert torch._C._get_mkldnn_enabled() == inside
        assert torch._C._get_mkldnn_enabled()
    with pytest.raises(KeyError), kernels.switches("native"):
        raise KeyError
    assert torch._C._get_mkldnn_enabled()


def test_layouts_are_counted():
    packed = dict.fromkeys(kernels.REGIMES, "packed")
    assert kernels.layouts({"linear": packed}) == 1
    assert kernels.layouts({"linear": {**packed, "gemv": "native"}}) == 2
    assert kernels.layouts({"linear": dict.fromkeys(kernels.REGIMES, "plain")}) == 1
    for dtype in (torch.float32, torch.bfloat16):
        assert kernels.layouts(kernels.default(CPU, dtype, copies=1)) == 1


@pytest.mark.parametrize(("tiles", "one_row"), [(False, "native"), (True, "packed")])
def test_one_row_of_bf16_takes_the_plain_layout_where_there_are_no_tiles(
    monkeypatch, tiles, one_row
):
    monkeypatch.setattr(kernels, "packs", lambda device, dtype: True)
    monkeypatch.setattr(kernels, "has_tiles", lambda: tiles)
    linear = kernels.default(CPU, torch.bfloat16)["linear"]
    assert linear == {"gemv": one_row, "small": "packed", "gemm": "packed"}
    assert set(kernels.default(CPU, torch.bfloat16, copies=1)["linear"].values()) == {"packed"}
    assert set(kernels.default(CPU, torch.float32)["linear"].values()) == {"packed"}


def test_a_row_by_torchs_own_product_keeps_its_shape_and_takes_a_bias():
    generator = torch.Generator().manual_seed(0)
    weight, bias = (torch.randn(n, generator=generator) for n in ((6, 4), (6,)))
    for shape in ((1, 1, 4), (1, 4), (4,)):
        x = torch.randn(shape, generator=generator)
        for b in (None, bias):
            with kernels.switches("native"):
                y = kernels.Linear(weight, b, {"native"})(x, "native")
            wanted = torch.nn.functional.linear(x, weight, b)
            assert y.shape == wanted.shape
            torch.testing.assert_close(y, wanted)


def test_regimes():
    assert [kernels.regime(n) for n in (1, 2, 15, 16, 512)] == [
        "gemv", "small", "small", "gemm", "gemm",
    ]  # fmt: skip


def test_pick_completes_a_table_and_names_what_is_wrong():
    bf16 = torch.bfloat16
    assert kernels.pick(None, CPU, bf16) == kernels.default(CPU, bf16)
    picked = kernels.pick({"linear": {"gemv": "plain"}}, CPU, bf16)
    assert picked["linear"]["gemv"] == "plain"
    assert picked["attention"] == kernels.default(CPU, bf16)["attention"]
    with pytest.raises(ValueError, match="tensorcore"):
        kernels.pick({"linear": {"gemv": "tensorcore"}}, CPU, bf16)
    with pytest.raises(ValueError, match="conv"):
        kernels.pick({"conv": {}}, CPU, bf16)
    cuda = torch.device("cuda")
    with pytest.raises(ValueError, match="packed"):
        kernels.pick({"linear": {"gemv": "packed"}}, cuda, bf16)


def test_no_packing_away_from_the_cpu_or_without_onednn(monkeypatch):
    assert not kernels.packs(torch.device("cuda"), torch.bfloat16)
    assert not kernels.packs(CPU, torch.float16)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert kernels.candidates(CPU, torch.float32)["linear"] == ("plain",)
    assert kernels.default(CPU, torch.float32)["linear"]["gemm"] == "plain"
