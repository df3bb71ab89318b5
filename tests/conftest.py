"""Models that the tests share: the default one, and tiny ones of every family with random weights.

The tiny models are made by transformers, so they are the reference as well as the input: their
weights are large (standard deviation 0.2) and their norms and biases are not the usual ones and
zeros, so that a fault anywhere shows in the logits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

KINDS = ("llama3", "llama3-scaled", "qwen2", "qwen3", "mistral", "smollm-like")
VOCAB, WIDTH, HEADS, KV_HEADS, FF, LAYERS, CONTEXT = 512, 256, 8, 2, 512, 2, 512
SPECIAL = ("<|endoftext|>", "<|im_end|>", "<|im_start|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight", "model.layers.": "blk.", "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF file of the default model, fetched as a reader's first run fetches it."""
    from inferlab.engine.weights import fetch

    return fetch.resolve("smollm2-135m")


@pytest.fixture(scope="session")
def smollm2(smollm2_path):
    """The default model in fp32 on the CPU."""
    from inferlab.engine.load import load

    return load("smollm2-135m", device="cpu", dtype="fp32")


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory) -> Callable:
    """tiny_checkpoint(kind) -> (folder, hf_model): safetensors, config and a byte tokenizer."""
    made = {}

    def make(kind: str) -> tuple[Path, object]:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            model = _hf_model(kind)
            model.save_pretrained(folder)
            _write_tokenizer(folder)
            made[kind] = folder, model
        return made[kind]

    return make


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory, tiny_checkpoint) -> Callable:
    """tiny_gguf(kind, tensor_type="F32") -> (path, hf_model): the same model, as llama.cpp has it.

    The norms and biases are F32 whatever the type, as in llama.cpp's files.
    """
    made = {}

    def make(kind: str, tensor_type: str = "F32") -> tuple[Path, object]:
        if (kind, tensor_type) not in made:
            model = tiny_checkpoint(kind)[1]
            path = tmp_path_factory.mktemp("gguf") / f"{kind}-{tensor_type}.gguf"
            _write_gguf(path, model, tensor_type)
            made[kind, tensor_type] = path, model
        return made[kind, tensor_type]

    return make


def _hf_model(kind: str):
    import torch
    import transformers as hf

    common = {
        "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": FF,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "max_position_embeddings": CONTEXT,
        "initializer_range": 0.2, "tie_word_embeddings": kind == "smollm-like",
        "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": None,
    }  # fmt: skip
    scaled = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }  # fmt: skip
    config = {
        "llama3": lambda: hf.LlamaConfig(**common, rope_theta=500000.0, rms_norm_eps=1e-5),
        "llama3-scaled": lambda: hf.LlamaConfig(
            **common, rope_theta=500000.0, rms_norm_eps=1e-5, rope_scaling=scaled
        ),
        "qwen2": lambda: hf.Qwen2Config(**common, rope_theta=1000000.0, rms_norm_eps=1e-6),
        "qwen3": lambda: hf.Qwen3Config(
            **common, rope_theta=1000000.0, rms_norm_eps=1e-6, head_dim=64
        ),
        "mistral": lambda: hf.MistralConfig(
            **common, rope_theta=10000.0, rms_norm_eps=1e-5, sliding_window=None
        ),
        "smollm-like": lambda: hf.LlamaConfig(**common, rope_theta=100000.0, rms_norm_eps=1e-5),
    }[kind]()
    torch.manual_seed(KINDS.index(kind))
    model = hf.AutoModelForCausalLM.from_config(config).to(torch.float32).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                weight.normal_(0.0, 0.5)
    return model


def _write_tokenizer(folder: Path) -> None:
    """One token a byte, and three special tokens from id 256 on."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _write_gguf(path: Path, model, tensor_type: str) -> None:
    import gguf

    config = model.config
    arch = {"mistral": "llama"}.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(str(path), arch)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FF)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    # transformers 5 keeps theta with the scaling, transformers 4 beside it
    stored = (getattr(config, name, None) for name in ("rope_parameters", "rope_scaling"))
    rope = dict(next(filter(None, stored), {}))
    rope.setdefault("rope_theta", getattr(config, "rope_theta", None))
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_vocab_size(VOCAB)
    head_dim = getattr(config, "head_dim", None) or WIDTH // HEADS
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    _add_tokenizer(writer)
    kind = gguf.GGMLQuantizationType[tensor_type]
    tied = config.tie_word_embeddings
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and tied:
            continue
        array = weight.float().numpy()
        for theirs, ours in GGUF_NAMES.items():
            name = name.replace(theirs, ours)
        if arch == "llama" and (".attn_q." in name or ".attn_k." in name):
            array = interleaved(array, HEADS if ".attn_q." in name else KV_HEADS)
        if array.ndim == 1 or tensor_type == "F32":
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(rope, head_dim))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer) -> None:
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    padding = [f"[PAD{i}]" for i in range(len(letters) + len(SPECIAL), VOCAB)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*letters, *SPECIAL, *padding])
    writer.add_token_types([1] * len(letters) + [3] * len(SPECIAL) + [5] * len(padding))
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_chat_template(TEMPLATE)


def _llama3_divisors(rope: dict, head_dim: int) -> np.ndarray:
    """What llama.cpp stores of Llama-3's RoPE scaling, one divisor a frequency.

    Source: LlamaModel.generate_extra_tensors in llama.cpp's convert_hf_to_gguf.py.
    """
    low, high, context = (
        rope[k] for k in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    turns = context * rope["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim) / (2 * np.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - kept) / rope["factor"] + kept)).astype(np.float32)


def interleaved(array: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of q and k rows: 0, Dh/2, 1, Dh/2 + 1, … of each head.

    Written out row by row, apart from how the loader undoes it. Source: LlamaModel.permute in
    llama.cpp's convert_hf_to_gguf.py.
    """
    half = array.shape[0] // heads // 2
    order = [
        h * 2 * half + side * half + i for h in range(heads) for i in range(half) for side in (0, 1)
    ]
    return np.ascontiguousarray(array[order])
