"""The engine's logits are those of transformers on the same weights, and a fault would show.

Tolerance: 1e-5 of the range of the logits. The noise of fp32 is 1e-6 to 3e-6 of it; the planted
faults below move the logits by far more, each asserted.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch

from inferlab.engine import generate, kernels, load, prefill
from inferlab.engine import kvcache as kvcache_module
from inferlab.engine.model import Model
from inferlab.theory.shapes import ModelShape, weight_shapes

KINDS = ["llama3", "llama3-scaled", "qwen2", "qwen3", "mistral", "smollm-like"]
TOLERANCE = 1e-5
PLAIN = {op: dict.fromkeys(kernels.REGIMES, "plain") for op in ("linear", "attention")}


def ids(count: int, vocab: int, seed: int = 0) -> list[int]:
    return torch.randint(vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Largest difference as a share of the range of the reference."""
    return float((ours - theirs).abs().max() / (theirs.max() - theirs.min()))


def all_logits(model: Model, tokens: list[int]) -> torch.Tensor:
    return prefill(model, model.cache(1, len(tokens)), tokens, head="all")[0]


@torch.inference_mode()
def reference(hf_model, tokens: list[int]) -> torch.Tensor:
    return hf_model(torch.tensor([tokens])).logits[0]


def relaid(model: Model, shape: ModelShape | None = None, table=None, **changed) -> Model:
    """The model again, from its plain tensors, with another shape, table or changed tensors."""
    tensors = {name: model.weights[name].clone() for name in model.weights}
    return Model.create(shape or model.shape, {**tensors, **changed}, table=table)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["safetensors", "gguf"])
def test_logits_equal_transformers(kind, form, tiny_checkpoint, tiny_gguf):
    path, hf_model = tiny_checkpoint(kind) if form == "safetensors" else tiny_gguf(kind)
    model = load(path, device="cpu", dtype="fp32")
    tokens = ids(300, model.shape.vocab)
    theirs = reference(hf_model, tokens)
    assert error(all_logits(model, tokens), theirs) < TOLERANCE
    if "rope_freqs.weight" not in model.weights and form == "safetensors":
        assert error(all_logits(relaid(model, table=PLAIN), tokens), theirs) < TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_continuation_equals_transformers(kind, tiny_checkpoint):
    folder, hf_model = tiny_checkpoint(kind)
    model = load(folder, device="cpu", dtype="fp32")
    tokens = ids(40, model.shape.vocab, seed=1)
    ours = [step.tokens[0] for step in generate(model, tokens, 60)]
    theirs = hf_model.generate(
        torch.tensor([tokens]), max_new_tokens=60, min_new_tokens=60, do_sample=False,
        attention_mask=torch.ones(1, 40), pad_token_id=0,
    )[0, 40:].tolist()  # fmt: skip
    # min_new_tokens forbids transformers the end token; ours may choose it, then they part
    end = ours.index(257) if 257 in ours else len(ours)
    assert end > 10
    assert ours[:end] == theirs[:end]


@pytest.fixture(scope="session")
def hf_smollm2(smollm2_path):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(
        smollm2_path.parent, gguf_file=smollm2_path.name, dtype=torch.float32
    ).eval()


@pytest.mark.slow
def test_smollm2_equals_transformers(smollm2, hf_smollm2):
    tokens = smollm2.tokenizer.encode("Reading a prompt is one pass; writing is many. " * 30)[:300]
    assert len(tokens) == 300
    assert error(all_logits(smollm2, tokens), reference(hf_smollm2, tokens)) < TOLERANCE


@pytest.mark.slow
def test_smollm2_writes_200_tokens_as_transformers_does(smollm2, hf_smollm2):
    tokens = smollm2.tokenizer.chat([{"role": "user", "content": "Why is the sky blue?"}])
    ours = [step.tokens[0] for step in generate(smollm2, tokens, 200)]
    theirs = hf_smollm2.generate(
        torch.tensor([tokens]), attention_mask=torch.ones(1, len(tokens)), max_new_tokens=200,
        do_sample=False, pad_token_id=0, eos_token_id=-1,
    )[0, len(tokens):].tolist()  # fmt: skip
    assert len(theirs) == 200
    assert ours == theirs


def test_the_default_model_still_writes_what_it_wrote(smollm2):
    """A golden output in fp32: a change here means that the engine computes something else."""
    tokens = smollm2.tokenizer.chat([{"role": "user", "content": "What is the capital of France?"}])
    steps = list(generate(smollm2, tokens, 40, stop=smollm2.tokenizer.eos))
    text = smollm2.tokenizer.decode([s.tokens[0] for s in steps])
    assert text == GOLDEN_TEXT
    top = steps[0].logits[0].float().topk(3)
    assert top.indices.tolist() == GOLDEN_IDS
    assert top.values.tolist() == pytest.approx(GOLDEN_LOGITS, abs=2e-4)


GOLDEN_TEXT = "The capital of France is Paris."
GOLDEN_IDS = [504, 60, 15319]
GOLDEN_LOGITS = [25.32536, 25.24328, 24.94240]


# --------------------------------------------------------------------------- planted faults


def faulty(model: Model, fault: str) -> Model:
    shape = model.shape
    replace = dataclasses.replace
    if fault == "eps":
        return relaid(model, replace(shape, norm_eps=shape.norm_eps * 10))
    if fault == "theta":
        return relaid(model, replace(shape, rope_theta=shape.rope_theta * 1.02))
    if fault == "scaling":
        return relaid(model, replace(shape, rope_scaling=None))
    if fault == "permutation":  # the rows of k as llama.cpp stores them
        name, half = "blk.0.attn_k.weight", shape.head_dim // 2
        k = model.weights[name].view(shape.n_kv_heads, 2, half, -1)
        return relaid(model, **{name: k.transpose(1, 2).reshape(-1, shape.d_model)})
    raise AssertionError(fault)


@pytest.mark.parametrize("fault", ["eps", "theta", "scaling", "permutation"])
def test_a_planted_fault_shows(fault, tiny_checkpoint):
    folder, hf_model = tiny_checkpoint("llama3-scaled")
    model = load(folder, device="cpu", dtype="fp32")
    tokens = ids(300, model.shape.vocab)
    theirs = reference(hf_model, tokens)
    assert error(all_logits(model, tokens), theirs) < TOLERANCE
    assert error(all_logits(faulty(model, fault), tokens), theirs) > 3 * TOLERANCE


def test_a_mask_off_by_one_shows(tiny_checkpoint, monkeypatch):
    folder, hf_model = tiny_checkpoint("llama3")
    model = load(folder, device="cpu", dtype="fp32")
    tokens = ids(300, model.shape.vocab)
    theirs = reference(hf_model, tokens)

    def read_in_two() -> torch.Tensor:
        cache = model.cache(1, 300)
        prefill(model, cache, tokens[:100])
        return prefill(model, cache, tokens[100:], head="all")[0]

    assert error(read_in_two(), theirs[100:]) < TOLERANCE
    for shift in (-1, 1):
        monkeypatch.setattr(
            kvcache_module, "causal_mask",
            lambda new, total, device, s=shift: torch.ones(new, total, dtype=torch.bool).tril(
                total - new + s
            ),
        )  # fmt: skip
        assert error(read_in_two(), theirs[100:]) > 3 * TOLERANCE


def test_sliding_window_equals_transformers():
    hf = pytest.importorskip("transformers")
    config = hf.MistralConfig(
        vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, sliding_window=24, initializer_range=0.2,
        attn_implementation="eager", max_position_embeddings=256,
    )  # fmt: skip
    torch.manual_seed(0)
    hf_model = hf.MistralForCausalLM(config).eval()
    shape = ModelShape(
        name="windowed", n_layers=2, d_model=64, n_heads=4, n_kv_heads=2, head_dim=16, d_ff=96,
        vocab=128, norm_eps=config.rms_norm_eps, max_context=256, sliding_window=24,
        rope_theta=config.rope_parameters["rope_theta"],
    )  # fmt: skip
    names = {
        "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
        "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    weights = {}
    for name, tensor in hf_model.state_dict().items():
        parts = name.split(".")
        if parts[1] == "layers":
            weights[f"blk.{parts[2]}.{names[parts[-2]]}.weight"] = tensor
    weights["token_embd.weight"] = hf_model.model.embed_tokens.weight.detach()
    weights["output_norm.weight"] = hf_model.model.norm.weight.detach()
    weights["output.weight"] = hf_model.lm_head.weight.detach()
    assert set(weights) == set(weight_shapes(shape))
    model = Model.create(shape, dict(weights))
    tokens = ids(100, 128)
    theirs = reference(hf_model, tokens)
    assert error(all_logits(model, tokens), theirs) < TOLERANCE
    cache = model.cache(1, 100)
    prefill(model, cache, tokens[:60])
    steps = torch.stack([prefill(model, cache, [t])[0] for t in tokens[60:]])
    assert error(steps, theirs[60:]) < TOLERANCE
    wide = Model.create(dataclasses.replace(shape, sliding_window=25), dict(weights))
    assert error(all_logits(wide, tokens), theirs) > 3 * TOLERANCE


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n_experts": 4, "n_experts_active": 2, "d_ff_expert": 8}, "experts"),
        ({"gated_mlp": False}, "gate"),
        ({"norm": "layer"}, "layer norm"),
        ({"rope_theta": None}, "positions"),
    ],
)
def test_a_shape_it_cannot_run_is_named(change, named):
    shape = ModelShape(
        name="odd", n_layers=1, d_model=16, n_heads=2, n_kv_heads=1, head_dim=8, d_ff=8, vocab=32
    )
    with pytest.raises(ValueError, match=named):
        Model.create(dataclasses.replace(shape, **change), {})


def test_reading_a_name_gives_the_checkpoints_tensor(tiny_checkpoint):
    folder, hf_model = tiny_checkpoint("qwen2")
    model = load(folder, device="cpu", dtype="fp32")
    theirs = hf_model.state_dict()
    layer = "model.layers.1."
    pairs = {
        "blk.1.attn_k.weight": layer + "self_attn.k_proj.weight",
        "blk.1.attn_v.bias": layer + "self_attn.v_proj.bias",
        "blk.1.ffn_up.weight": layer + "mlp.up_proj.weight",
        "blk.1.ffn_norm.weight": layer + "post_attention_layernorm.weight",
        "output.weight": "lm_head.weight",
    }
    for name, their_name in pairs.items():
        assert torch.equal(model.weights[name], theirs[their_name])
    assert sum(model.weights[n].numel() for n in model.weights) == model.shape.params
    with pytest.raises(KeyError):
        model.weights["blk.1.attn_output.bias"]
    with pytest.raises(KeyError):
        model.weights["blk.9.attn_q.weight"]


def test_nbytes_is_what_is_held(tiny_checkpoint):
    folder, _ = tiny_checkpoint("smollm-like")
    model = load(folder, device="cpu", dtype="fp32")
    plain = relaid(model, table=PLAIN)
    assert plain.nbytes == 4 * model.shape.params
    packed = "packed" in kernels.candidates(model.device, model.dtype)["linear"]
    head = 4 * model.shape.vocab * model.shape.d_model
    assert model.nbytes == plain.nbytes + head * packed  # a tied head is packed beside the table
    half = load(folder, device="cpu", dtype="bf16")
    if kernels.layouts(half.table) == 2:
        products = sum(v.plain.numel() for v in half.weights.linears.values())
        assert half.nbytes == 2 * (half.shape.params + products)
