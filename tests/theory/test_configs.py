"""Shapes read from Hugging Face configs and from GGUF metadata; what cannot be read is named."""

import pytest

from inferlab.theory import shapes
from inferlab.theory.shapes import RopeScaling

# The configs as published, without the keys that say nothing about the shape.
LLAMA_31_8B = {
    "model_type": "llama", "attention_bias": False, "hidden_act": "silu", "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": False,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": False,
    "vocab_size": 128256,
    "rope_scaling": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3",
    },
}  # fmt: skip
MISTRAL_7B = {
    "model_type": "mistral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
    "tie_word_embeddings": False, "vocab_size": 32000,
}  # fmt: skip
QWEN25_15B = {
    "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 1536, "intermediate_size": 8960,
    "max_position_embeddings": 32768, "max_window_layers": 21, "num_attention_heads": 12,
    "num_hidden_layers": 28, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": True,
    "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
QWEN3_4B = {
    "model_type": "qwen3", "attention_bias": False, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 2560, "intermediate_size": 9728, "max_position_embeddings": 40960,
    "max_window_layers": 36, "num_attention_heads": 32, "num_hidden_layers": 36,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000,
    "sliding_window": None, "tie_word_embeddings": True, "use_sliding_window": False,
    "vocab_size": 151936,
}  # fmt: skip
MIXTRAL = {
    "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": None,
    "tie_word_embeddings": False, "vocab_size": 32000,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "attention_bias": False, "first_k_dense_replace": 3,
    "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
    "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "moe_layer_freq": 1,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
    "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_theta": 10000, "tie_word_embeddings": False, "v_head_dim": 128, "vocab_size": 129280,
    "rope_scaling": {
        "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096, "type": "yarn",
    },
}  # fmt: skip
OPT_13B = {
    "model_type": "opt", "activation_function": "relu", "do_layer_norm_before": True,
    "ffn_dim": 20480, "hidden_size": 5120, "max_position_embeddings": 2048,
    "num_attention_heads": 40, "num_hidden_layers": 40, "vocab_size": 50272,
    "word_embed_proj_dim": 5120, "_remove_final_layer_norm": False,
}  # fmt: skip
MPT_7B = {
    "model_type": "mpt", "d_model": 4096, "expansion_ratio": 4, "max_seq_len": 2048, "n_heads": 32,
    "n_layers": 32, "no_bias": True, "vocab_size": 50432,
    "attn_config": {"alibi": True, "attn_type": "multihead_attention", "qk_ln": False},
}  # fmt: skip
CONFIGS = {
    "llama-3.1-8b": LLAMA_31_8B, "mistral-7b": MISTRAL_7B, "qwen2.5-1.5b": QWEN25_15B,
    "qwen3-4b": QWEN3_4B, "mixtral-8x7b": MIXTRAL, "deepseek-v3": DEEPSEEK_V3, "opt-13b": OPT_13B,
    "mpt-7b": MPT_7B,
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_gives_the_shape_of_the_zoo(name):
    assert shapes.from_hf_config(CONFIGS[name], name=name) == shapes.get(name)


def test_rope_as_transformers_5_writes_it():
    old = {k: v for k, v in LLAMA_31_8B.items() if k not in ("rope_theta", "rope_scaling")}
    new = old | {"rope_parameters": {"rope_theta": 500000.0, **LLAMA_31_8B["rope_scaling"]}}
    assert shapes.from_hf_config(new) == shapes.from_hf_config(LLAMA_31_8B)
    plain = old | {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}}
    assert shapes.from_hf_config(plain).rope_scaling is None
    linear = old | {"rope_scaling": {"type": "linear", "factor": 2.0}}
    assert shapes.from_hf_config(linear).rope_scaling == RopeScaling("linear", 2.0)
    assert shapes.from_hf_config(linear).rope_theta == 10000


def test_absent_keys_take_the_defaults_of_their_format():
    bare = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 100,
        "num_attention_heads": 8, "num_hidden_layers": 2,
    }  # fmt: skip
    shape = shapes.from_hf_config(bare)
    assert (shape.n_kv_heads, shape.head_dim, shape.norm_eps) == (8, 8, 1e-6)
    assert (shape.tied_head, shape.rope_theta, shape.max_context) == (False, 10000, 2048)
    assert shapes.from_hf_config(bare | {"model_type": "mistral"}).sliding_window == 4096
    windowless = bare | {"model_type": "mistral", "sliding_window": None}
    assert shapes.from_hf_config(windowless).sliding_window is None
    biased = shapes.from_hf_config(bare | {"attention_bias": True, "mlp_bias": True})
    assert (biased.qkv_bias, biased.o_bias, biased.mlp_bias) == (True, True, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gemma2"}, "'gemma2' cannot be described: known are .*llama"),
        ({"model_type": None}, "None cannot be described"),
        ({"hidden_size": None}, "lacks 'hidden_size'"),
        ({"vocab_size": None}, "lacks 'vocab_size'"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2}}, "'longrope'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2}}, "'yarn'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2}}, "low_freq_factor"),
    ],
)
def test_what_a_config_cannot_say_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        shapes.from_hf_config(LLAMA_31_8B | change)


def test_qwen_windows():
    window = QWEN25_15B | {"use_sliding_window": True, "sliding_window": 4096}
    assert shapes.from_hf_config(window | {"max_window_layers": 28}).sliding_window is None
    assert shapes.from_hf_config(window | {"max_window_layers": 0}).sliding_window == 4096
    with pytest.raises(ValueError, match="max_window_layers=21 of 28"):
        shapes.from_hf_config(window)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (OPT_13B | {"word_embed_proj_dim": 512}, "word_embed_proj_dim"),
        (OPT_13B | {"do_layer_norm_before": False}, "opt-350m"),
        (MPT_7B | {"no_bias": False}, "biases"),
        (MPT_7B | {"attn_config": {"alibi": False}}, "alibi"),
        (DEEPSEEK_V3 | {"moe_layer_freq": 2}, "moe_layer_freq"),
    ],
)
def test_variants_that_no_shape_expresses_are_refused(config, message):
    with pytest.raises(ValueError, match=message):
        shapes.from_hf_config(config)


# --- GGUF -----------------------------------------------------------------------------------------

SMOLLM2 = {
    "general.architecture": "llama", "general.name": "Smollm2 135M", "llama.block_count": 30,
    "llama.context_length": 8192, "llama.embedding_length": 576, "llama.feed_forward_length": 1536,
    "llama.attention.head_count": 9, "llama.attention.head_count_kv": 3,
    "llama.rope.freq_base": 100000.0, "llama.rope.dimension_count": 64, "llama.vocab_size": 49152,
    "llama.attention.layer_norm_rms_epsilon": 9.999999747378752e-06,
}  # fmt: skip


def as_gguf(shape, arch):
    """The metadata llama.cpp's converter writes for this shape, numbers rounded to float32."""
    import struct

    def single(x):
        return struct.unpack("<f", struct.pack("<f", x))[0]

    keys = {
        "block_count": shape.n_layers, "context_length": shape.max_context,
        "embedding_length": shape.d_model, "feed_forward_length": shape.d_ff,
        "attention.head_count": shape.n_heads, "attention.head_count_kv": shape.n_kv_heads,
        "rope.freq_base": single(shape.rope_theta), "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": single(shape.norm_eps),
    }  # fmt: skip
    tokens = {"tokenizer.ggml.tokens": ["x"] * shape.vocab}
    return {"general.architecture": arch} | {f"{arch}.{k}": v for k, v in keys.items()} | tokens


def test_the_default_models_metadata():
    table = shapes.weight_shapes(shapes.get("smollm2-135m"))
    shape = shapes.from_gguf_metadata(SMOLLM2, table, name="smollm2-135m")
    assert shape == shapes.get("smollm2-135m")
    assert shapes.from_gguf_metadata(SMOLLM2, list(table), name="smollm2-135m") == shape
    assert shapes.from_gguf_metadata(SMOLLM2).name == "smollm2-135m"


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("llama-3-8b", "llama"),
        ("llama-2-70b", "llama"),
        ("qwen2.5-1.5b", "qwen2"),
        ("qwen3-4b", "qwen3"),
        ("qwen3-8b", "qwen3"),
    ],
)
def test_metadata_and_tensors_give_the_shape_back(name, arch):
    shape = shapes.get(name)
    table = shapes.weight_shapes(shape)
    assert shapes.from_gguf_metadata(as_gguf(shape, arch), table, name=name) == shape
    # Sizes in file order, (in, out), give the same vocabulary.
    flipped = {k: tuple(reversed(v)) for k, v in table.items()}
    assert shapes.from_gguf_metadata(as_gguf(shape, arch), flipped, name=name) == shape


def test_without_tensors_the_head_is_taken_as_separate():
    shape = shapes.from_gguf_metadata(as_gguf(shapes.get("qwen3-4b"), "qwen3"))
    assert not shape.tied_head
    assert shape.qk_norm
    assert shapes.from_gguf_metadata(as_gguf(shapes.get("qwen2.5-1.5b"), "qwen2")).qkv_bias


def test_mixtral_is_stored_as_llama():
    metadata = as_gguf(shapes.get("mixtral-8x7b"), "llama")
    metadata |= {"llama.expert_count": 8, "llama.expert_used_count": 2}
    table = shapes.weight_shapes(shapes.get("mixtral-8x7b"))
    shape = shapes.from_gguf_metadata(metadata, table, name="mixtral-8x7b")
    assert shape == shapes.get("mixtral-8x7b")


def test_linear_scaling_and_window_in_metadata():
    metadata = SMOLLM2 | {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    assert shapes.from_gguf_metadata(metadata).rope_scaling == RopeScaling("linear", 4.0)
    windowed = SMOLLM2 | {"llama.attention.sliding_window": 4096}
    assert shapes.from_gguf_metadata(windowed).sliding_window == 4096
    assert "rope_freqs.weight" in shapes.ModelShape.__doc__


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "gemma2"}, "'gemma2' cannot be described: known are llama"),
        ({"general.architecture": None}, "None cannot be described"),
        ({"llama.rope.scaling.type": "yarn"}, "'yarn'"),
        ({"llama.rope.dimension_count": 32}, "partial rotation"),
        ({"llama.attention.head_count_kv": [3, 1, 3]}, "layer to layer"),
        ({"llama.attention.value_length": 32}, "different width"),
    ],
)
def test_what_metadata_cannot_say_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        shapes.from_gguf_metadata(SMOLLM2 | change)


def test_a_missing_key_is_named():
    without = {k: v for k, v in SMOLLM2.items() if k != "llama.block_count"}
    with pytest.raises(ValueError, match="lacks 'llama.block_count'"):
        shapes.from_gguf_metadata(without)
    no_vocab = {k: v for k, v in SMOLLM2.items() if k != "llama.vocab_size"}
    with pytest.raises(ValueError, match="lacks 'llama.vocab_size'"):
        shapes.from_gguf_metadata(no_vocab)
    per_layer = SMOLLM2 | {"llama.attention.head_count_kv": [3] * 30}
    assert shapes.from_gguf_metadata(per_layer).n_kv_heads == 3
