"""Counts against another implementation: transformers' models, built without memory or run tiny.

Parameters: the published configs instantiated on torch's meta device. FLOPs: tiny models run for
real under torch's FLOP counter, which counts the matrix products alone and does not skip the
masked half of attention.
"""

import inspect

import pytest

from inferlab.theory import shapes
from inferlab.theory.counts import Sequence, step

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TINY = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
MODELS = {
    "llama": TINY | {"model_type": "llama", "tie_word_embeddings": True, "attention_bias": True},
    "mistral": TINY | {"model_type": "mistral", "sliding_window": None},
    "qwen2": TINY | {"model_type": "qwen2"},
    "qwen3": TINY | {"model_type": "qwen3", "head_dim": 24},
    "mixtral": TINY | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v3": TINY | {
        "model_type": "deepseek_v3", "num_key_value_heads": 4, "q_lora_rank": 20,
        "kv_lora_rank": 12, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 14,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 2,
        "topk_group": 1, "moe_intermediate_size": 24, "first_k_dense_replace": 1,
    },
    "opt": {
        "model_type": "opt", "vocab_size": 96, "hidden_size": 32, "ffn_dim": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
        "word_embed_proj_dim": 32,
    },
    "mpt": {
        "model_type": "mpt", "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64,
        "vocab_size": 96, "no_bias": True, "attn_config": {"alibi": True},
    },
}  # fmt: skip


def config_of(description):
    kind = description["model_type"]
    rest = {k: v for k, v in description.items() if k != "model_type"}
    config = transformers.AutoConfig.for_model(kind, **rest)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return config


def build(description, device="cpu"):
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config_of(description)).eval()


@pytest.mark.parametrize("kind", MODELS)
def test_parameters_equal_numel(kind):
    model = build(MODELS[kind], "meta")
    shape = shapes.from_hf_config(model.config.to_dict())
    # DeepSeek-V3 keeps the router's bias, a weight in the file, as a buffer.
    biases = [b for name, b in model.named_buffers() if name.endswith("e_score_correction_bias")]
    total = sum(p.numel() for p in model.parameters()) + sum(b.numel() for b in biases)
    assert shape.params == total
    assert shape == shapes.from_hf_config(MODELS[kind], name=shape.name)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("opt-6.7b", {"hidden_size": 4096, "ffn_dim": 16384, "num_hidden_layers": 32}),
        ("opt-13b", {"hidden_size": 5120, "ffn_dim": 20480, "num_hidden_layers": 40}),
        ("mpt-7b", {"d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432}),
    ],
)
def test_zoo_entries_whose_published_total_is_rounded(name, sizes):
    if name == "mpt-7b":
        config = {"model_type": "mpt", "no_bias": True, "attn_config": {"alibi": True}} | sizes
    else:
        heads = sizes["hidden_size"] // 128
        width = {"word_embed_proj_dim": sizes["hidden_size"], "num_attention_heads": heads}
        config = {"model_type": "opt", "vocab_size": 50272} | width | sizes
    model = build(config, "meta")
    assert shapes.get(name).params == sum(p.numel() for p in model.parameters())


def parameters(model):
    return inspect.signature(model.forward).parameters


def matmul_flops(run):
    """FLOP of the matrix products in run(), less those that only make rotary angles."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        out = run()
    angles = sum(
        sum(ops.values())
        for module, ops in counter.get_flop_counts().items()
        if module.endswith("rotary_emb")
    )
    return counter.get_total_flops() - angles, out


@pytest.mark.parametrize("kind", MODELS)
def test_products_equal_the_flop_counter(kind):
    torch.manual_seed(0)
    model = build(MODELS[kind])
    shape = shapes.from_hf_config(model.config.to_dict())
    prompt, batch = 13, 3
    tokens = torch.randint(0, 96, (batch, prompt))
    counted, out = matmul_flops(lambda: model(tokens, use_cache=True))
    work = [Sequence(prompt)] * batch
    assert step(shape, work, causal_half=False, head="all").matmul_flops == counted
    # Planted faults: the causal half, logits of the last position only, MAC = FLOP.
    assert step(shape, work, head="all").matmul_flops < counted
    assert step(shape, work, causal_half=False).matmul_flops < counted
    assert step(shape, work, causal_half=False, head="all").matmul_flops != counted // 2

    cache = {"cache" if "cache" in parameters(model) else "past_key_values": out.past_key_values}
    again, _ = matmul_flops(lambda: model(tokens[:, :1], use_cache=True, **cache))
    one = step(shape, [Sequence(1, prompt)] * batch)
    if not shape.kv_lora_rank:
        assert one.matmul_flops == again
        return
    # transformers always expands: every latent it has cached, or, in its older versions, which
    # cache expanded keys and values, the new one alone. Ours takes the cheaper, absorbed form.
    alone = step(shape, [Sequence(1)] * batch).matmul_flops
    attention = 2 * shape.n_layers * batch * 4 * (10 + 6 + 14)
    expansion = 2 * shape.n_layers * batch * 4 * (10 + 14) * 12
    assert again in (alone + prompt * attention, alone + prompt * (attention + expansion))
    assert one.matmul_flops < alone + prompt * (attention + expansion)
