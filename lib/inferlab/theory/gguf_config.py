"""What the metadata of a GGUF file says, as fields of a `ModelShape`.

A key that is absent takes the default of the GGUF specification; what no shape can express is
refused with a ValueError that names the key and the value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

_GGUF = ("llama", "mistral", "qwen2", "qwen3")
_REQUIRED = object()


def gguf_fields(metadata: Mapping, tensors: Mapping | Iterable[str] | None = None) -> dict:
    """Fields of the shape GGUF metadata describes; see `shapes.from_gguf_metadata`."""
    arch = metadata.get("general.architecture")
    if arch not in _GGUF:
        raise ValueError(
            f"GGUF architecture {arch!r} cannot be described: known are {', '.join(_GGUF)}"
        )
    get = _GGUFKeys(metadata, arch)
    found = None if tensors is None else frozenset(tensors)
    heads, d_model = get.int("attention.head_count"), get.int("embedding_length")
    head_dim = get.int("attention.key_length", d_model // heads)
    if get.int("attention.value_length", head_dim) != head_dim:
        raise ValueError("GGUF keys and values of different width cannot be described")
    if get.int("rope.dimension_count", head_dim) != head_dim:
        raise ValueError(f"GGUF {arch}.rope.dimension_count: partial rotation cannot be described")
    experts = get.int("expert_count", 0)
    return {
        "name": str(metadata.get("general.name") or arch).strip().lower().replace(" ", "-"),
        "architecture": "mixtral" if experts else arch,
        "n_layers": get.int("block_count"),
        "d_model": d_model,
        "n_heads": heads,
        "n_kv_heads": get.int("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "d_ff": get.int("feed_forward_length"),
        "vocab": _gguf_vocab(metadata, get, tensors, d_model),
        "tied_head": found is not None and "output.weight" not in found,
        "qkv_bias": arch == "qwen2" if found is None else "blk.0.attn_q.bias" in found,
        "o_bias": found is not None and "blk.0.attn_output.bias" in found,
        "mlp_bias": found is not None and "blk.0.ffn_up.bias" in found,
        "qk_norm": arch == "qwen3" if found is None else "blk.0.attn_q_norm.weight" in found,
        "norm_eps": _shortest_float32(get("attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest_float32(get("rope.freq_base", 10000.0)),
        "rope_scaling": _gguf_scaling(get),
        "max_context": get.int("context_length"),
        "sliding_window": get.int("attention.sliding_window", 0) or None,
        "n_experts": experts,
        "n_experts_active": get.int("expert_used_count") if experts else 0,
        "d_ff_expert": get.int("feed_forward_length") if experts else 0,
    }


class _GGUFKeys:
    """Reads '{arch}.{key}' of the metadata; a scalar given as a one-element array counts as one."""

    def __init__(self, metadata: Mapping, arch: str):
        self.metadata, self.arch = metadata, arch

    def __call__(self, key: str, default=_REQUIRED):
        full = f"{self.arch}.{key}"
        value = self.metadata.get(full, default)
        if value is _REQUIRED:
            raise ValueError(f"the GGUF metadata lacks {full!r}, without which no shape is known")
        return value

    def int(self, key: str, default=_REQUIRED) -> int:
        value = self(key, default)
        if isinstance(value, (str, bytes)) or not hasattr(value, "__len__"):
            return int(value)
        if len({int(v) for v in value}) != 1:
            raise ValueError(
                f"GGUF {self.arch}.{key} differs from layer to layer, which no shape can express"
            )
        return int(value[0])


def _gguf_vocab(metadata: Mapping, get: _GGUFKeys, tensors, d_model: int) -> int:
    if isinstance(tensors, Mapping) and "token_embd.weight" in tensors:
        first, second = (int(n) for n in tensors["token_embd.weight"])
        return first * second // d_model
    tokens = metadata.get("tokenizer.ggml.tokens")
    if tokens is not None:
        return len(tokens)
    return get.int("vocab_size")


def _gguf_scaling(get: _GGUFKeys) -> dict | None:
    kind = get("rope.scaling.type", "none")
    factor = float(get("rope.scaling.factor", 0) or get("rope.scale_linear", 0) or 0)
    if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        return None
    if kind != "linear":
        raise ValueError(f"GGUF {get.arch}.rope.scaling.type {kind!r}: known are none and linear")
    return {"kind": "linear", "factor": factor}


def _shortest_float32(value: float) -> float:
    """The shortest decimal that is this float32: GGUF stores 1e-5 as 9.999999747378752e-06."""
    single = struct.pack("<f", value)
    return next(
        short
        for digits in range(1, 18)
        if struct.pack("<f", short := float(f"{value:.{digits}g}")) == single
    )
