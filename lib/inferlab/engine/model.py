"""The transformer: one file, one family (Llama, SmolLM2, Mistral, Qwen2.5, Qwen3), no state.

Letters as in `kernels`. A variant (bias, query/key norm, tied head, RoPE scaling) is a field of
the shape or a tensor that is there or not; names of tensors are those of a GGUF file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from inferlab.engine import kernels
from inferlab.engine.device import short_name
from inferlab.engine.kvcache import KVCache, NoCache
from inferlab.engine.operands import Layer, Weights
from inferlab.theory.shapes import ModelShape


@dataclass(frozen=True)
class Model:
    """A shape, its weights as the kernels take them, and the kernel table they were laid out for.

    Made by `Model.create` (or `engine.load`, `engine.random_model`, which call it).
    """

    shape: ModelShape
    weights: Weights
    table: kernels.Table
    inverse: Tensor = field(repr=False)  # (E/2,) rotary frequencies, fp32, on the device
    tokenizer: Any = None
    source: str = ""

    @classmethod
    def create(
        cls,
        shape: ModelShape,
        weights: dict[str, Tensor],
        tokenizer: Any = None,
        source: str = "",
        table: kernels.Table | None = None,
    ) -> Model:
        """Lay `weights` (GGUF names, one dtype, one device; the dict is emptied) out for use.

        Raises ValueError for a shape that this engine cannot run, naming what is missing.
        """
        unsupported = _unsupported(shape)
        if unsupported:
            raise ValueError(
                f"{shape.name} has {unsupported}: this engine runs Llama, SmolLM2, Mistral, "
                "Qwen2.5 and Qwen3; its costs can still be computed with inferlab.theory"
            )
        embedding = weights["token_embd.weight"]
        table = kernels.pick(table, embedding.device, embedding.dtype)
        factors = weights.pop("rope_freqs.weight", None)
        inverse = kernels.inverse_frequencies(shape, factors).to(embedding.device)
        held = Weights(weights, shape.n_layers, table)
        return cls(shape, held, table, inverse, tokenizer, source)

    @property
    def device(self) -> torch.device:
        return self.weights["token_embd.weight"].device

    @property
    def dtype(self) -> torch.dtype:
        return self.weights["token_embd.weight"].dtype

    @property
    def dtype_name(self) -> str:
        """The dtype as the theory names it: fp32, bf16, fp16."""
        return short_name(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of memory the weights take, in the layout held."""
        return self.weights.nbytes

    def cache(self, batch: int = 1, max_tokens: int = 512) -> KVCache:
        """A contiguous cache of this model's shape, dtype and device."""
        return KVCache(self.shape, batch, max_tokens, self.dtype, self.device)

    def no_cache(self, batch: int = 1, max_tokens: int = 512) -> NoCache:
        """The same verbs without a memory of keys and values: every step starts over."""
        return NoCache(self.shape, batch, max_tokens, self.dtype, self.device)


@torch.inference_mode()
def forward(
    model: Model,
    tokens: Tensor,
    cache: KVCache | NoCache,
    new: list[int] | None = None,
    head: str = "last",
) -> Tensor:
    """One forward pass over `tokens` (B, T), appended to `cache`.

    `new[b]` says how many of the T tokens of sequence b are real (the rest is padding on the
    right); None: all. Returns logits in the model's dtype: (B, vocab) of each sequence's last
    real token, or with head="all" (B, T, vocab) of every token of the step.
    """
    if head not in ("last", "all"):
        raise ValueError(f"head={head!r}: 'last' or 'all'")
    tokens, cache = cache.begin(tokens, new)
    w, eps = model.weights, model.shape.norm_eps
    path = kernels.path(model.table, tokens.numel(), tokens.shape[1])
    turned, still = model.shape.n_heads + model.shape.n_kv_heads, model.shape.n_kv_heads
    angles = kernels.rope_angles(model.inverse, cache.positions, model.dtype)
    angles = kernels.with_still_heads(*angles, turned, still)  # 2 × (B, T, H+2K, E)
    x = F.embedding(tokens, w.tensors["token_embd.weight"])  # (B, T, D)
    with kernels.switches(path.linear):
        for index, layer in enumerate(w.layers):
            x = _attention(model.shape, layer, path, index, x, angles, cache).add_(x)
            x = _mlp(layer, path, x, eps).add_(x)
    if head == "last":
        last = torch.tensor(cache.last, device=x.device)
        x = x[torch.arange(len(cache.last), device=x.device), last]  # (B, D)
        path = kernels.path(model.table, len(cache.last), 1)
    cache.advance()
    x = path.norm(x, w.tensors["output_norm.weight"], eps)
    with kernels.switches(path.linear):
        return w.linears["output"](x, path.linear)  # (B, V) or (B, T, V)


def _attention(
    s: ModelShape,
    layer: Layer,
    path: kernels.Path,
    index: int,
    x: Tensor,
    angles: tuple[Tensor, Tensor],
    cache: KVCache,
) -> Tensor:
    """Grouped-query attention of one layer: (B, T, D) -> (B, T, D)."""
    batch, new, _ = x.shape
    x = path.norm(x, layer.attn_norm, s.norm_eps)
    qkv = layer.attn_qkv(x, path.linear)  # (B, T, (H+2K)·E)
    qkv = qkv.view(batch, new, s.n_heads + 2 * s.n_kv_heads, s.head_dim)
    if layer.attn_q_norm is not None:  # Qwen3: each head is normed before it is rotated
        q, k, v = qkv.split((s.n_heads, s.n_kv_heads, s.n_kv_heads), 2)
        q = kernels.rms_norm(q, layer.attn_q_norm, s.norm_eps)
        k = kernels.rms_norm(k, layer.attn_k_norm, s.norm_eps)
        qkv = torch.cat((q, k, v), 2)
    qkv = kernels.rope(qkv, *angles).transpose(1, 2)  # (B, H+2K, T, E); the values stay
    q, kv = qkv.narrow(1, 0, s.n_heads), qkv.narrow(1, s.n_heads, 2 * s.n_kv_heads)
    k, v = cache.write(index, kv)  # (B, K, S, E) each
    out = path.attention(q, k, v, cache.mask, cache.causal)  # (B, H, T, E)
    out = out.transpose(1, 2).reshape(batch, new, s.n_heads * s.head_dim)
    return layer.attn_output(out, path.linear)


def _mlp(layer: Layer, path: kernels.Path, x: Tensor, eps: float) -> Tensor:
    """down(silu(gate(x)) · up(x)): (B, T, D) -> (B, T, D). Shazeer, arXiv 2002.05202."""
    x = path.norm(x, layer.ffn_norm, eps)
    gate, up = layer.ffn_gate_up(x, path.linear).chunk(2, -1)  # 2 × (B, T, d_ff)
    return layer.ffn_down(F.silu(gate).mul_(up), path.linear)


def _unsupported(s: ModelShape) -> str:
    """What of this shape the engine does not run, in words; empty if nothing."""
    scaling = s.rope_scaling.kind if s.rope_scaling else "llama3"
    found = [
        (s.n_experts, "experts"),
        (s.kv_lora_rank, "latent attention (MLA)"),
        (not s.gated_mlp or s.activation != "silu", "an MLP without a SiLU gate"),
        (s.norm != "rms", f"{s.norm} norm"),
        (s.parallel_blocks, "attention and MLP side by side"),
        (s.rope_theta is None or s.learned_positions, "positions without rotary embedding"),
        (scaling not in ("llama3", "linear"), f"{scaling} RoPE scaling"),
    ]
    return ", ".join(what for missing, what in found if missing)
