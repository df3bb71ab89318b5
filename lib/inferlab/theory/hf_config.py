"""What a Hugging Face `config.json` says, as fields of a `ModelShape`.

A key that is absent takes the default of the model's configuration class in transformers; what no
shape can express is refused with a ValueError that names the key and the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

_ACTIVATIONS = {"silu": "silu", "swish": "silu", "relu": "relu"}


def hf_fields(config: Mapping) -> dict:
    """Fields of the shape a Hugging Face config describes; see `shapes.from_hf_config`."""
    kind = config.get("model_type")
    if kind not in _HF:
        raise ValueError(
            f"model_type {kind!r} cannot be described: known are {', '.join(sorted(_HF))}"
        )
    return {"name": str(config.get("_name_or_path") or kind), **_HF[kind](config)}


def _need(config: Mapping, key: str) -> int:
    if config.get(key) is None:
        raise ValueError(
            f"the {config.get('model_type')} config lacks {key!r}, without which no shape is known"
        )
    return int(config[key])


def _or(config: Mapping, key: str, default):
    value = config.get(key)
    return default if value is None else value


def _hf_common(config: Mapping, context: int, eps: float = 1e-6) -> dict:
    """Fields that Llama and its descendants write in the same way; context, eps: defaults."""
    act = _or(config, "hidden_act", "silu")
    if act not in _ACTIVATIONS:
        raise ValueError(f"hidden_act {act!r} cannot be described: known are silu and relu")
    heads, d_model = _need(config, "num_attention_heads"), _need(config, "hidden_size")
    theta, scaling = _hf_rope(config)
    return {
        "architecture": config["model_type"],
        "n_layers": _need(config, "num_hidden_layers"),
        "d_model": d_model,
        "n_heads": heads,
        "n_kv_heads": int(_or(config, "num_key_value_heads", heads)),
        "head_dim": int(_or(config, "head_dim", d_model // heads)),
        "d_ff": _need(config, "intermediate_size"),
        "vocab": _need(config, "vocab_size"),
        "tied_head": bool(_or(config, "tie_word_embeddings", False)),
        "norm_eps": float(_or(config, "rms_norm_eps", eps)),
        "activation": _ACTIVATIONS[act],
        "rope_theta": theta,
        "rope_scaling": scaling,
        "max_context": int(_or(config, "max_position_embeddings", context)),
    }


def _hf_rope(config: Mapping) -> tuple[float, dict | None]:
    """(theta, scaling): transformers 4 writes rope_theta and rope_scaling, 5 rope_parameters."""
    rope = _or(config, "rope_parameters", None) or _or(config, "rope_scaling", None) or {}
    theta = float(_or(rope, "rope_theta", _or(config, "rope_theta", 10000.0)))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in (None, "default"):
        return theta, None
    if kind not in ("llama3", "linear") and not (kind == "yarn" and "kv_lora_rank" in config):
        raise ValueError(
            f"rope_type {kind!r} cannot be described: known are default, linear and llama3"
        )
    if rope.get("factor") is None or (kind == "llama3" and len(_LLAMA3 - rope.keys())):
        raise ValueError(f"RoPE scaling {kind!r} lacks one of factor, {', '.join(sorted(_LLAMA3))}")
    scaling = {"kind": kind, "factor": float(rope["factor"])}
    if kind == "llama3":
        scaling["low_freq_factor"] = float(rope["low_freq_factor"])
        scaling["high_freq_factor"] = float(rope["high_freq_factor"])
    if rope.get("original_max_position_embeddings") is not None:
        scaling["original_context"] = int(rope["original_max_position_embeddings"])
    return theta, scaling


_LLAMA3 = frozenset({"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})


def _hf_llama(config: Mapping) -> dict:
    bias = bool(_or(config, "attention_bias", False))
    return _hf_common(config, 2048) | {
        "qkv_bias": bias,
        "o_bias": bias,
        "mlp_bias": bool(_or(config, "mlp_bias", False)),
    }


def _hf_mistral(config: Mapping) -> dict:
    # Absent is the default of MistralConfig, 4096 tokens; null is no window.
    window = config.get("sliding_window", 4096)
    kv_heads = int(_or(config, "num_key_value_heads", 8))
    return _hf_common(config, 131072) | {"sliding_window": window, "n_kv_heads": kv_heads}


def _hf_qwen2(config: Mapping) -> dict:
    return _hf_common(config, 32768) | {
        "qkv_bias": True,
        "sliding_window": _qwen_window(config),
        "n_kv_heads": int(_or(config, "num_key_value_heads", 32)),
    }


def _hf_qwen3(config: Mapping) -> dict:
    bias = bool(_or(config, "attention_bias", False))
    return _hf_common(config, 32768) | {
        "qkv_bias": bias,
        "o_bias": bias,
        "qk_norm": True,
        "head_dim": int(_or(config, "head_dim", 128)),
        "sliding_window": _qwen_window(config),
        "n_kv_heads": int(_or(config, "num_key_value_heads", 32)),
    }


def _qwen_window(config: Mapping) -> int | None:
    """Qwen windows the layers from max_window_layers on, and only if use_sliding_window is set."""
    if not config.get("use_sliding_window") or config.get("sliding_window") is None:
        return None
    first, layers = int(_or(config, "max_window_layers", 28)), _need(config, "num_hidden_layers")
    if 0 < first < layers:
        raise ValueError(
            f"max_window_layers={first} of {layers}: a mix of full and windowed layers cannot be "
            "described; every layer is one or the other"
        )
    return int(config["sliding_window"]) if first == 0 else None


def _hf_mixtral(config: Mapping) -> dict:
    return _hf_common(config, 131072, eps=1e-5) | {
        "sliding_window": config.get("sliding_window"),
        "n_kv_heads": int(_or(config, "num_key_value_heads", 8)),
        "n_experts": _need(config, "num_local_experts"),
        "n_experts_active": _need(config, "num_experts_per_tok"),
        "d_ff_expert": _need(config, "intermediate_size"),
        "rope_theta": _hf_rope({"rope_theta": 1e6, **config})[0],
    }


def _hf_deepseek_v3(config: Mapping) -> dict:
    if _or(config, "moe_layer_freq", 1) != 1 or config.get("attention_bias"):
        raise ValueError("deepseek_v3 with moe_layer_freq or attention_bias cannot be described")
    nope, rope = _need(config, "qk_nope_head_dim"), _need(config, "qk_rope_head_dim")
    return _hf_common(config, 4096) | {
        "architecture": "deepseek",
        "head_dim": nope + rope,
        "n_experts": _need(config, "n_routed_experts"),
        "n_experts_active": _need(config, "num_experts_per_tok"),
        "n_shared_experts": int(_or(config, "n_shared_experts", 0)),
        "d_ff_expert": _need(config, "moe_intermediate_size"),
        "n_dense_layers": int(_or(config, "first_k_dense_replace", 0)),
        "router_bias": True,
        "q_lora_rank": int(_or(config, "q_lora_rank", 0)),
        "kv_lora_rank": _need(config, "kv_lora_rank"),
        "qk_nope_dim": nope,
        "qk_rope_dim": rope,
        "v_head_dim": _need(config, "v_head_dim"),
    }


def _hf_opt(config: Mapping) -> dict:
    d_model, heads = _need(config, "hidden_size"), _need(config, "num_attention_heads")
    if _or(config, "word_embed_proj_dim", d_model) != d_model:
        raise ValueError("opt with word_embed_proj_dim other than hidden_size cannot be described")
    if not _or(config, "do_layer_norm_before", True) or config.get("_remove_final_layer_norm"):
        raise ValueError("opt with its norms after the blocks (opt-350m) cannot be described")
    act = _or(config, "activation_function", "relu")
    if act not in ("relu", "gelu"):
        raise ValueError(f"opt with activation_function {act!r} cannot be described")
    bias = bool(_or(config, "enable_bias", True))
    context = int(_or(config, "max_position_embeddings", 2048))
    return _plain_mlp(d_model, heads) | {
        "architecture": "opt",
        "n_layers": _need(config, "num_hidden_layers"),
        "d_ff": _need(config, "ffn_dim"),
        "vocab": _need(config, "vocab_size"),
        "tied_head": bool(_or(config, "tie_word_embeddings", True)),
        "qkv_bias": bias,
        "o_bias": bias,
        "mlp_bias": bias,
        "norm_bias": bool(_or(config, "layer_norm_elementwise_affine", True)),
        "activation": act,
        "learned_positions": context + 2,  # two rows lie before position 0
        "max_context": context,
    }


def _hf_mpt(config: Mapping) -> dict:
    attn = _or(config, "attn_config", {})
    if not attn.get("alibi") or not config.get("no_bias"):
        raise ValueError("mpt without alibi or with biases cannot be described")
    if attn.get("attn_type", "multihead_attention") != "multihead_attention" or attn.get("qk_ln"):
        raise ValueError("mpt with multi-query attention or qk_ln cannot be described")
    d_model, heads = _need(config, "d_model"), _need(config, "n_heads")
    return _plain_mlp(d_model, heads) | {
        "architecture": "mpt",
        "n_layers": _need(config, "n_layers"),
        "d_ff": int(_or(config, "expansion_ratio", 4)) * d_model,
        "vocab": _need(config, "vocab_size"),
        "tied_head": True,
        "activation": "gelu",
        "max_context": _need(config, "max_seq_len"),
    }


def _plain_mlp(d_model: int, heads: int) -> dict:
    """OPT and MPT: multi-head attention, layer norm, two-matrix MLP, no rotary embedding."""
    return {
        "d_model": d_model,
        "n_heads": heads,
        "n_kv_heads": heads,
        "head_dim": d_model // heads,
        "norm": "layer",
        "norm_eps": 1e-5,
        "gated_mlp": False,
        "rope_theta": None,
    }


_HF: dict[str, Callable[[Mapping], dict]] = {
    "llama": _hf_llama,
    "mistral": _hf_mistral,
    "qwen2": _hf_qwen2,
    "qwen3": _hf_qwen3,
    "mixtral": _hf_mixtral,
    "deepseek_v3": _hf_deepseek_v3,
    "opt": _hf_opt,
    "mpt": _hf_mpt,
}
