"""Hugging Face folders: names mapped, shards joined, pickles and damage refused in words."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from inferlab.engine.weights import safetensors

CPU = torch.device("cpu")
KINDS = ("llama3", "llama3-scaled", "qwen2", "qwen3", "mistral", "smollm-like")


def load(folder, dtype=torch.float32):
    return safetensors.load_weights(safetensors.read_folder(folder), CPU, dtype)


@pytest.fixture
def folder(tmp_path, tiny_checkpoint):
    """A copy of a tiny Llama-3 that a test may damage."""
    shutil.copytree(tiny_checkpoint("llama3")[0], tmp_path / "model")
    return tmp_path / "model"


def alter(folder: Path, change) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def alter_config(folder: Path, **values) -> None:
    config = json.loads((folder / "config.json").read_text()) | values
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_gives_the_weights_it_was_made_of(kind, tiny_checkpoint):
    folder, model = tiny_checkpoint(kind)
    weights, state = load(folder), model.state_dict()
    layers = {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm",
        "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
        "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    }  # fmt: skip
    top = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    for name, weight in weights.items():
        stem, _, kind_of = name.rpartition(".")
        if stem.startswith("blk."):
            _, layer, part = stem.split(".")
            theirs = f"model.layers.{layer}.{layers[part]}.{kind_of}"
        else:
            theirs = f"{top[stem]}.{kind_of}"
        assert torch.equal(weight, state[theirs]), name
        assert weight.is_contiguous()
    assert len(weights) == len(list(model.parameters()))


def test_the_weights_do_not_hang_on_the_file(folder):
    weights = load(folder)
    before = weights["output.weight"].clone()
    alter(folder, lambda tensors: tensors["lm_head.weight"].zero_())
    assert torch.equal(weights["output.weight"], before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_wanted_type_is_the_rounded_one(folder, dtype):
    full = load(folder)
    for name, weight in load(folder, dtype).items():
        assert torch.equal(weight, full[name].to(dtype)), name


def test_bf16_files_are_read_exactly(folder):
    def shorten(tensors):
        tensors.update({name: value.bfloat16() for name, value in tensors.items()})

    full = load(folder)
    alter(folder, shorten)
    for name, weight in load(folder).items():
        assert torch.equal(weight, full[name].bfloat16().float()), name


def test_shards_are_joined(tmp_path, tiny_checkpoint):
    one, model = tiny_checkpoint("llama3")
    model.save_pretrained(tmp_path, max_shard_size="1MB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    whole, parts = load(one), load(tmp_path)
    assert set(whole) == set(parts)
    assert all(torch.equal(parts[name], whole[name]) for name in whole)


def test_what_is_stored_besides_the_weights_is_passed_over(tmp_path, tiny_checkpoint):
    """A tied head stored twice, and the rotary table of old checkpoints."""
    folder = tmp_path / "tied"
    shutil.copytree(tiny_checkpoint("smollm-like")[0], folder)
    whole = load(folder)

    def add(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(16)

    alter(folder, add)
    assert set(load(folder)) == set(whole)
    assert "output.weight" not in whole


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pt", "weights.PTH", "a.ckpt", "x.pkl"]
)
def test_pickles_are_refused_and_never_opened(folder, name):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(ValueError, match=f"{name} is a pickle checkpoint, which runs code"):
        safetensors.read_folder(folder)


def test_a_pickle_beside_safetensors_does_not_matter(folder):
    (folder / "pytorch_model.bin").write_bytes(b"anything")
    assert load(folder)


def test_a_truncated_file(folder):
    file = folder / "model.safetensors"
    content = file.read_bytes()
    for size in (0, 7, 100, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"model\.safetensors is a truncated or corrupt"):
            safetensors.read_folder(folder)


def test_a_corrupt_header(folder):
    file = folder / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:8] + b"\x00" * 40 + content[48:])
    with pytest.raises(ValueError, match="truncated or corrupt safetensors"):
        safetensors.read_folder(folder)


def test_a_value_that_is_no_number(folder):
    alter(folder, lambda t: t["model.norm.weight"].__setitem__(3, np.inf))
    with pytest.raises(ValueError, match="output_norm.weight holds values that are not finite"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("model.layers.1.mlp.up_proj.weight"), "lacks blk.1.ffn_up.weight"),
        (lambda t: t.update({"model.layers.0.odd.weight": torch.ones(2)}), "layers.0.odd.weight"),
        (lambda t: t.update({"model.norm.weight": torch.ones(3)}), r"\(3,\) where .* \(256,\)"),
        (lambda t: t.update({"lm_head.weight": torch.ones(2, 2).char()}), "stored as I8"),
    ],
)
def test_tensors_that_do_not_belong_together(folder, change, words):
    alter(folder, change)
    with pytest.raises(ValueError, match=words):
        safetensors.read_folder(folder)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model_type": "gemma2"}, "model_type 'gemma2'"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"quantized \(gptq\)"),
        ({"hidden_act": "relu"}, "the activation relu"),
        ({"num_hidden_layers": 1 << 31}, "says it has 2147483648 layers"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope_type 'yarn'"),
    ],
)
def test_models_the_engine_does_not_run(folder, values, words):
    alter_config(folder, **values)
    with pytest.raises(ValueError, match=words):
        safetensors.read_folder(folder)


def test_a_mixture_of_experts_is_named(folder):
    alter_config(folder, model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)
    with pytest.raises(ValueError, match="architecture 'mixtral', which the engine does not run"):
        safetensors.read_folder(folder)


def test_files_that_are_not_there(folder):
    (folder / "config.json").rename(folder / "other.json")
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        safetensors.read_folder(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"holds no \.safetensors"):
        safetensors.read_folder(folder)


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_config_that_is_no_json_object(folder, content):
    (folder / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config\.json .*fetch it again"):
        safetensors.read_folder(folder)


@pytest.mark.parametrize(
    ("index", "error", "words"),
    [
        ({"weight_map": {"a": "../elsewhere.safetensors"}}, ValueError, "outside its folder"),
        ({"weight_map": {"a": "gone.safetensors"}}, FileNotFoundError, r"lacks gone\.safetensors"),
        ({}, ValueError, "no weight_map"),
    ],
)
def test_a_damaged_index(folder, index, error, words):
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(error, match=words):
        safetensors.read_folder(folder)


# --- the Hub ----------------------------------------------------------------------------------


def test_of_the_hub_only_what_is_needed_is_fetched_config_first(folder):
    calls = []

    def snapshot(repo, **patterns):
        calls.append((repo, patterns))
        return str(folder)

    shapes = []
    assert safetensors.download("org/name", shapes.append, snapshot) == folder
    assert [repo for repo, _ in calls] == ["org/name"] * 2
    first, second = (set(patterns["allow_patterns"]) for _, patterns in calls)
    assert "config.json" in first
    assert not any(name.endswith(".safetensors") for name in first)
    assert second - first == {"*.safetensors"}
    assert not any(name.endswith(safetensors.PICKLES) for name in second)
    assert shapes[0].vocab == 512


def test_a_model_that_does_not_fit_is_not_fetched(folder):
    calls = []

    def snapshot(repo, **patterns):
        calls.append(patterns)
        return str(folder)

    def refuse(shape):
        raise MemoryError("too large")

    with pytest.raises(MemoryError):
        safetensors.download("org/name", refuse, snapshot)
    assert len(calls) == 1


def test_no_network_and_nothing_cached():
    def snapshot(repo, **patterns):
        raise ConnectionError("Name or service not known")

    with pytest.raises(ConnectionError, match=r"org/name could not be fetched .* check the name"):
        safetensors.download("org/name", snapshot=snapshot)


def test_the_real_hub_client_offline(tmp_path, monkeypatch):
    import huggingface_hub

    def offline(repo, **patterns):
        return huggingface_hub.snapshot_download(
            repo, cache_dir=tmp_path, local_files_only=True, **patterns
        )

    with pytest.raises(ConnectionError, match="could not be fetched from the Hugging Face Hub"):
        safetensors.download("org/name", snapshot=offline)


def test_a_full_disk_while_fetching_from_the_hub():
    import errno

    def snapshot(repo, **patterns):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="the disk is full"):
        safetensors.download("org/name", snapshot=snapshot)
