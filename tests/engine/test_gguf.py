"""GGUF files: values as the gguf package has them, rows in the right order."""

import struct

import gguf as reference
import numpy as np
import pytest
import torch

from inferlab.engine.weights import contract, gguf

CPU = torch.device("cpu")
HEADS, KV_HEADS = 4, 2  # of the files that `write_gguf` makes
KINDS = ("llama3", "llama3-scaled", "qwen2", "qwen3", "mistral", "smollm-like")


def load(path, dtype=torch.float32):
    file = gguf.read_header(path)
    return file, gguf.load_weights(file, file.shape, CPU, dtype)


def half_split(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k put back one by one: even rows of a head first, then the odd ones."""
    size = len(rows) // heads
    order = [h * size + k for h in range(heads) for k in (*range(0, size, 2), *range(1, size, 2))]
    return rows[order]


@pytest.mark.parametrize("label", gguf.TENSOR_TYPES)
def test_values_are_those_of_the_gguf_package(tmp_path, label, write_gguf):
    _, weights = load(write_gguf(tmp_path / "m.gguf", label))
    for tensor in reference.GGUFReader(tmp_path / "m.gguf").tensors:
        expected = reference.quants.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name.startswith("blk.0.attn_q"):
            expected = half_split(expected, HEADS)
        if tensor.name.startswith("blk.0.attn_k"):
            expected = half_split(expected, KV_HEADS)
        assert weights[tensor.name].is_contiguous()
        np.testing.assert_array_equal(weights[tensor.name].numpy(), expected, err_msg=tensor.name)


def test_q4_0_by_hand(tmp_path, write_gguf):
    """One block, from the definition of the format: w = d (q - 8), low nibbles first."""
    path = write_gguf(tmp_path / "m.gguf", "Q4_0")
    tensor = next(t for t in reference.GGUFReader(path).tensors if t.name == "output.weight")
    block = tensor.data[0][:18].tobytes()
    (scale,) = struct.unpack("<e", block[:2])
    low = [scale * ((byte & 15) - 8) for byte in block[2:]]
    high = [scale * ((byte >> 4) - 8) for byte in block[2:]]
    assert load(path)[1]["output.weight"][0, :32].tolist() == low + high


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_wanted_type_is_the_rounded_fp32(tmp_path, dtype, write_gguf):
    path = write_gguf(tmp_path / "m.gguf", "Q8_0")
    full, short = load(path)[1], load(path, dtype)[1]
    for name, weight in short.items():
        assert weight.dtype == dtype
        assert torch.equal(weight, full[name].to(dtype)), name


def test_blocks_of_rows_are_put_together(tmp_path, monkeypatch, write_gguf):
    path = write_gguf(tmp_path / "m.gguf", "Q4_K")
    whole = load(path)[1]
    monkeypatch.setattr(gguf, "_CHUNK", 3 * 256)  # three rows at a time, which divides nothing
    for name, weight in load(path)[1].items():
        assert torch.equal(weight, whole[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_gives_the_weights_it_was_made_of(kind, tiny_gguf):
    path, model = tiny_gguf(kind)
    _, weights = load(path)
    state = {name: value for name, value in model.state_dict().items()}
    from inferlab.engine.weights.safetensors import gguf_name

    expected = {gguf_name(name): value for name, value in state.items()}
    if model.config.tie_word_embeddings:
        del expected["output.weight"]
    assert set(weights) - set(expected) <= {contract.ROPE_FREQS}
    for name, value in expected.items():
        assert torch.equal(weights[name], value), name


def test_the_permutation_is_needed_and_undone(tiny_gguf, monkeypatch):
    """Planted fault: with the rows left as llama.cpp has them, q and k are other weights."""
    path, model = tiny_gguf("llama3")
    q = model.state_dict()["model.layers.0.self_attn.q_proj.weight"]
    assert torch.equal(load(path)[1]["blk.0.attn_q.weight"], q)
    monkeypatch.setattr(gguf, "unpermute", lambda weight, heads: weight)
    assert not torch.allclose(load(path)[1]["blk.0.attn_q.weight"], q, atol=0.1)


def test_the_permutation_takes_the_key_heads_for_k(tiny_gguf):
    """Planted fault: undoing k with the number of query heads gives other weights."""
    path, model = tiny_gguf("llama3")
    k = model.state_dict()["model.layers.0.self_attn.k_proj.weight"]
    file = gguf.read_header(path)
    stored = gguf._read(np.memmap(path), file.tensors["blk.0.attn_k.weight"], CPU, torch.float32)
    assert torch.equal(gguf.unpermute(stored, 2), k)
    assert not torch.allclose(gguf.unpermute(stored, 8), k, atol=0.1)


def test_biases_of_q_and_k_are_put_back_too(tmp_path, write_gguf):
    bias = np.arange(256, dtype=np.float32)
    f32 = reference.GGMLQuantizationType.F32

    def add(tensors):
        tensors["blk.0.attn_q.bias"] = (bias, f32)
        tensors["blk.0.attn_k.bias"] = (bias[:128], f32)
        tensors["blk.0.attn_v.bias"] = (bias[:128], f32)

    file, weights = load(write_gguf(tmp_path / "m.gguf", change=add))
    assert file.shape.qkv_bias
    assert weights["blk.0.attn_q.bias"].tolist() == half_split(bias, 4).tolist()
    assert weights["blk.0.attn_k.bias"].tolist() == half_split(bias[:128], 2).tolist()
    assert weights["blk.0.attn_v.bias"].tolist() == bias[:128].tolist()


def test_rope_divisors_are_kept_in_fp32(tiny_gguf):
    file, weights = load(tiny_gguf("llama3-scaled")[0], torch.bfloat16)
    divisors = weights["rope_freqs.weight"]
    assert divisors.dtype == torch.float32
    assert divisors[0] == 1
    assert divisors[-1] == 8
    assert file.shape.rope_scaling is None


@pytest.mark.parametrize("kind", ["smollm-like", "qwen2"])
def test_transformers_reads_the_same_weights(kind, tiny_gguf):
    """Another reader of the same file, with its own undoing of the permutation."""
    from transformers import AutoModelForCausalLM

    path, _ = tiny_gguf(kind, "Q8_0")
    theirs = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).state_dict()
    from inferlab.engine.weights.safetensors import gguf_name

    for name, weight in load(path)[1].items():
        (found,) = [v for k, v in theirs.items() if gguf_name(k) == name]
        assert torch.equal(weight, found), name


@pytest.mark.slow
def test_the_default_model_is_read_as_transformers_reads_it(smollm2_path):
    from transformers import AutoModelForCausalLM

    from inferlab.engine.weights.safetensors import gguf_name

    theirs = AutoModelForCausalLM.from_pretrained(
        smollm2_path.parent, gguf_file=smollm2_path.name, dtype=torch.float32
    ).state_dict()
    ours = load(smollm2_path)[1]
    assert len(ours) == 272
    for name, weight in theirs.items():
        if name != "lm_head.weight":
            assert torch.equal(ours[gguf_name(name)], weight), name


@pytest.mark.slow
def test_the_header_is_read_as_the_gguf_package_reads_it(smollm2_path):
    file, theirs = gguf.read_header(smollm2_path), reference.GGUFReader(smollm2_path)
    fields = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert file.metadata == fields
    assert len(file.tensors) == len(theirs.tensors)
    for tensor in theirs.tensors:
        info = file.tensors[tensor.name]
        assert info.shape == tuple(int(n) for n in reversed(tensor.shape))
        assert (info.type, info.offset) == (tensor.tensor_type, tensor.data_offset)
        assert info.nbytes == tensor.n_bytes


def test_the_default_model_is_the_published_shape(smollm2_path):
    from inferlab.theory import shapes

    shape, published = gguf.read_header(smollm2_path).shape, shapes.get("smollm2-135m")
    for field in ("n_layers", "d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff", "vocab",
                  "tied_head", "rope_theta", "norm_eps", "max_context", "params"):  # fmt: skip
        assert getattr(shape, field) == getattr(published, field), field
