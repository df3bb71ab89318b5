"""The weight tensors of a model: names and shapes, the one list from which parameters are counted.

Names are those of GGUF files. A linear weight is (out, in); an expert stack is (experts, out, in);
norms and biases are vectors. `shape` is a `theory.shapes.ModelShape`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

Table = dict[str, tuple[int, ...]]


def weight_shapes(shape) -> Table:
    """Every weight tensor of the model, GGUF name -> shape (elements along each axis).

    Llama, Qwen2, Qwen3 and Mistral models get exactly the tensors of their GGUF files (without
    `rope_freqs.weight`, which is a table, not a weight). MoE, MLA, OPT, MPT and PaLM shapes get the
    same vocabulary of names, so that they can be counted. `output.weight` is absent when the head
    is tied. The sum of all element counts is `shape.params`.
    """
    table: Table = {"token_embd.weight": (shape.vocab, shape.d_model)}
    if shape.learned_positions:
        table["position_embd.weight"] = (shape.learned_positions, shape.d_model)
    for i in range(shape.n_layers):
        for name, dims in layer_shapes(shape, moe=i >= shape.n_layers - shape.n_moe_layers):
            table[f"blk.{i}.{name}"] = dims
    table.update(_norm(shape, "output_norm", shape.d_model))
    if not shape.tied_head:
        table["output.weight"] = (shape.vocab, shape.d_model)
    return table


def layer_shapes(shape, moe: bool = False) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name without 'blk.{i}.', shape) of the tensors of one layer; `moe` asks for the experts."""
    d = shape.d_model
    yield from _norm(shape, "attn_norm", d)
    yield from _mla(shape) if shape.kv_lora_rank else _attention(shape)
    if not shape.parallel_blocks:
        yield from _norm(shape, "ffn_norm", d)
    yield from _experts(shape) if moe else _mlp(shape, "", shape.d_ff)


def elements(dims: tuple[int, ...]) -> int:
    """Number of elements of a tensor of this shape."""
    return prod(dims)


def _norm(shape, name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (width,)
    if shape.norm_bias:
        yield f"{name}.bias", (width,)


def _linear(name: str, out: int, into: int, bias: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (out, into)
    if bias:
        yield f"{name}.bias", (out,)


def _attention(shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    d, q, kv = shape.d_model, shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    yield from _linear("attn_q", q, d, shape.qkv_bias)
    yield from _linear("attn_k", kv, d, shape.qkv_bias)
    yield from _linear("attn_v", kv, d, shape.qkv_bias)
    if shape.qk_norm:
        yield "attn_q_norm.weight", (shape.head_dim,)
        yield "attn_k_norm.weight", (shape.head_dim,)
    yield from _linear("attn_output", d, q, shape.o_bias)


def _mla(shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    d, heads, rank = shape.d_model, shape.n_heads, shape.kv_lora_rank
    q = heads * (shape.qk_nope_dim + shape.qk_rope_dim)
    if shape.q_lora_rank:
        yield "attn_q_a.weight", (shape.q_lora_rank, d)
        yield "attn_q_a_norm.weight", (shape.q_lora_rank,)
        yield "attn_q_b.weight", (q, shape.q_lora_rank)
    else:
        yield "attn_q.weight", (q, d)
    yield "attn_kv_a_mqa.weight", (rank + shape.qk_rope_dim, d)
    yield "attn_kv_a_norm.weight", (rank,)
    yield "attn_kv_b.weight", (heads * (shape.qk_nope_dim + shape.v_head_dim), rank)
    yield "attn_output.weight", (d, heads * shape.v_head_dim)


def _mlp(shape, suffix: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    d, bias = shape.d_model, shape.mlp_bias
    if shape.gated_mlp:
        yield from _linear(f"ffn_gate{suffix}", width, d, bias)
    yield from _linear(f"ffn_up{suffix}", width, d, bias)
    yield from _linear(f"ffn_down{suffix}", d, width, bias)


def _experts(shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    d, count, width = shape.d_model, shape.n_experts, shape.d_ff_expert
    yield "ffn_gate_inp.weight", (count, d)
    if shape.router_bias:
        yield "exp_probs_b.bias", (count,)
    if shape.gated_mlp:
        yield "ffn_gate_exps.weight", (count, width, d)
    yield "ffn_up_exps.weight", (count, width, d)
    yield "ffn_down_exps.weight", (count, d, width)
    if shape.n_shared_experts:
        yield from _mlp(shape, "_shexp", shape.n_shared_experts * width)
