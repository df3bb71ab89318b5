"""`ModelShape`, the one description of a model, and the zoo of published shapes.

A prediction is made from a shape, an engine is built from a shape, and both read the same fields.
What follows from the fields (parameters, KV bytes) is a property here and derived nowhere else.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import get_type_hints

from inferlab import data
from inferlab.theory import tensors
from inferlab.theory.gguf_config import gguf_fields
from inferlab.theory.hf_config import hf_fields
from inferlab.theory.tensors import weight_shapes
from inferlab.theory.units import bytes_per_weight

__all__ = [
    "ModelShape", "RopeScaling", "from_gguf_metadata", "from_hf_config", "get", "names",
    "published", "weight_shapes",
]  # fmt: skip


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the context a model was first trained on.

    kind              'linear': every frequency divided by `factor`. 'llama3': wavelengths above
                      original_context / low_freq_factor are divided by `factor`, those below
                      original_context / high_freq_factor are kept, those between are blended.
                      'yarn' is described so that DeepSeek shapes can be counted; no engine here
                      runs it.
    original_context  tokens; needed by 'llama3'.
    """

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192

    def __post_init__(self):
        if self.kind not in ("llama3", "linear", "yarn"):
            raise ValueError(f"RoPE scaling {self.kind!r}: known are 'llama3', 'linear', 'yarn'")
        if self.factor <= 0:
            raise ValueError(f"RoPE scaling factor={self.factor}: it must be above 0")


@dataclass(frozen=True)
class ModelShape:
    """The sizes and switches of a decoder-only transformer; counts are elements, not bytes.

    `head_dim` is explicit: it need not be d_model / n_heads (Qwen3-4B: 128 with 2560 / 32 = 80).
    For MLA (kv_lora_rank > 0) head_dim is qk_nope_dim + qk_rope_dim.
    `d_ff` is the width of a dense MLP, `d_ff_expert` that of one expert; the first
    `n_dense_layers` layers of a MoE model are dense.
    `rope_theta` None means no rotary embedding (learned positions or ALiBi).
    `learned_positions` is the number of rows of the position table, 0 for none.
    `sliding_window` is the number of latest tokens, its own included, a token attends to; None
    for all. It holds for every layer.

    A Llama-3.1 or 3.2 model in GGUF carries its RoPE scaling as the tensor `rope_freqs.weight`
    (divisors of the inverse frequencies, head_dim / 2 of them), not in its metadata: the shape
    read from such a file has `rope_scaling` None, and the loader must apply the tensor.
    """

    name: str
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    vocab: int
    architecture: str = "llama"
    tied_head: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    norm: str = "rms"
    norm_bias: bool = False
    norm_eps: float = 1e-5
    gated_mlp: bool = True
    activation: str = "silu"
    parallel_blocks: bool = False
    learned_positions: int = 0
    rope_theta: float | None = 10000.0
    rope_scaling: RopeScaling | None = None
    max_context: int = 2048
    sliding_window: int | None = None
    n_experts: int = 0
    n_experts_active: int = 0
    n_shared_experts: int = 0
    d_ff_expert: int = 0
    n_dense_layers: int = 0
    router_bias: bool = False
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_dim: int = 0
    qk_rope_dim: int = 0
    v_head_dim: int = 0

    def __post_init__(self):
        for field in ("n_layers", "d_model", "n_heads", "n_kv_heads", "head_dim", "vocab"):
            _positive(self.name, field, getattr(self, field))
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"{self.name}: {self.n_heads} query heads cannot share {self.n_kv_heads} KV heads "
                "evenly; n_heads must be a multiple of n_kv_heads"
            )
        if self.norm not in ("rms", "layer"):
            raise ValueError(f"{self.name}: norm={self.norm!r}; known are 'rms' and 'layer'")
        if self.activation not in ("silu", "gelu", "relu"):
            raise ValueError(
                f"{self.name}: activation={self.activation!r}; known are 'silu', 'gelu', 'relu'"
            )
        if self.n_experts:
            _positive(self.name, "d_ff_expert", self.d_ff_expert)
            if not 1 <= self.n_experts_active <= self.n_experts:
                raise ValueError(
                    f"{self.name}: {self.n_experts_active} of {self.n_experts} experts per token; "
                    "n_experts_active must lie between 1 and n_experts"
                )
        if self.n_moe_layers < self.n_layers:
            _positive(self.name, "d_ff", self.d_ff)

    @property
    def group(self) -> int:
        """Query heads that share one KV head (1 is MHA, n_heads is MQA)."""
        return self.n_heads // self.n_kv_heads

    @property
    def n_moe_layers(self) -> int:
        """Layers whose MLP is a set of experts."""
        return max(0, self.n_layers - self.n_dense_layers) if self.n_experts else 0

    @functools.cached_property
    def params(self) -> int:
        """Parameters held in memory: the elements of every weight tensor (a tied head once)."""
        return sum(tensors.elements(dims) for dims in weight_shapes(self).values())

    @property
    def params_streamed(self) -> int:
        """Parameters a step reads in full: all but the tables of which only rows are looked up.

        An untied input embedding and learned positions are look-ups. A tied embedding is the head
        as well, so it is streamed once. Of a MoE model every expert is counted: the upper bound,
        reached by large batches; `counts.step` gives the expected number for a batch.
        Llama-3-8B: 8.030e9 held, 7.505e9 streamed.
        """
        rows = self.learned_positions + (0 if self.tied_head else self.vocab)
        return self.params - rows * self.d_model

    @property
    def params_active(self) -> int:
        """Parameters one token passes through: `params` without the experts it is not sent to.

        The embedding table is included, as in published figures (Mixtral-8x7B: 12.9e9).
        """
        idle = self.n_experts - self.n_experts_active
        matrices = 3 if self.gated_mlp else 2
        return self.params - self.n_moe_layers * idle * matrices * self.d_model * self.d_ff_expert

    @property
    def kv_per_token(self) -> int:
        """Elements one token leaves in the KV cache, all layers: 2 L H_kv D_h; MLA: L (r_kv + d_r).

        MLA stores one latent vector and one shared rotary key per layer, with no factor 2.
        Source: DeepSeek-V2, arXiv 2405.04434, table 1.
        """
        if self.kv_lora_rank:
            return self.n_layers * (self.kv_lora_rank + self.qk_rope_dim)
        return 2 * self.n_layers * self.n_kv_heads * self.head_dim

    def kv_bytes_per_token(self, dtype: str = "bf16") -> float:
        """Bytes one token takes in the KV cache, all layers: kv_per_token * bytes_per_weight."""
        return self.kv_per_token * bytes_per_weight(dtype)


def get(name: str) -> ModelShape:
    """The published shape of this id, e.g. get('llama-3-8b'). Source: data/models.csv.

    Raises ValueError for an unknown id and names the ids most like it.
    """
    key = str(name).lower()
    zoo = _zoo()
    if key not in zoo:
        near = difflib.get_close_matches(key, zoo, n=4, cutoff=0.4) or sorted(zoo)
        raise ValueError(
            f"no model shape named {name!r}: did you mean {', '.join(near)}? "
            "shapes.names() lists all; shapes.from_hf_config reads any other"
        )
    return zoo[key][0]


def names() -> tuple[str, ...]:
    """Ids of the published shapes, in the order of data/models.csv."""
    return tuple(_zoo())


def published(name: str) -> tuple[float, str]:
    """(total parameters as published, where) of a shape of the zoo; the test of `params`."""
    get(name)
    row = _zoo()[name.lower()][1]
    return float(row["published_params"]), row["published_source"]


def from_hf_config(config: Mapping, name: str | None = None) -> ModelShape:
    """The shape described by a Hugging Face `config.json`, given as a dict.

    Reads model types llama, mistral, qwen2, qwen3, mixtral, deepseek_v3, opt, mpt. Raises
    ValueError for another model type, for a key that is missing, and for a setting that no shape
    here can express; each is named.
    """
    return _build(hf_fields(config), name)


def from_gguf_metadata(
    metadata: Mapping,
    tensors: Mapping[str, tuple[int, ...]] | Iterable[str] | None = None,
    name: str | None = None,
) -> ModelShape:
    """The shape described by the key-value metadata of a GGUF file, keys as in the file.

    metadata  key -> value; arrays as sequences ('tokenizer.ggml.tokens' gives the vocabulary).
    tensors   the names of the tensors in the file, or name -> shape with (out, in) order for
              matrices; tells whether the head is tied (no 'output.weight') and which biases and
              q/k norms there are. Without it: not tied, biases as is usual for the architecture.
    Reads general.architecture llama (and what is stored as llama: Mistral, Mixtral, SmolLM2),
    mistral, qwen2, qwen3. Raises ValueError for another architecture and for a missing key.
    `rope_freqs.weight` is not read: see `ModelShape`.
    """
    return _build(gguf_fields(metadata, tensors), name)


def _build(values: dict, name: str | None) -> ModelShape:
    scaling = values.pop("rope_scaling", None)
    if name is not None:
        values["name"] = name
    return ModelShape(**values, rope_scaling=RopeScaling(**scaling) if scaling else None)


@functools.cache
def _zoo() -> dict[str, tuple[ModelShape, dict[str, str]]]:
    types, scaling = get_type_hints(ModelShape), get_type_hints(RopeScaling)
    zoo = {}
    for row in data.read_csv("models.csv"):
        values = {
            f.name: _parse(row[f.name], types[f.name])
            for f in fields(ModelShape)
            if f.name != "rope_scaling" and (row[f.name] or f.name == "rope_theta")
        }
        if row["rope_scaling_kind"]:
            values["rope_scaling"] = RopeScaling(
                **{
                    f.name: _parse(row[f"rope_scaling_{f.name}"], scaling[f.name])
                    for f in fields(RopeScaling)
                    if row[f"rope_scaling_{f.name}"]
                }
            )
        zoo[row["name"]] = (ModelShape(**values), row)
    return zoo


def _parse(text: str, kind):
    if not text:
        return None
    if kind is bool:
        return {"yes": True, "no": False}[text]
    if kind in (int, int | None):
        return int(text)
    return float(text) if kind in (float, float | None) else text


def _positive(name: str, field: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name}: {field}={value}; it must be at least 1")
