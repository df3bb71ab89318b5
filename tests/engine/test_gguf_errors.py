"""What is wrong with a GGUF file is said in one sentence that names the file."""

import struct

import gguf as reference
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferlab.engine.weights import gguf

CPU = torch.device("cpu")


def load(path, dtype=torch.float32):
    file = gguf.read_header(path)
    return gguf.load_weights(file, file.shape, CPU, dtype)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.gguf"):
        gguf.read_header(tmp_path / "nothing.gguf")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "only 0 bytes"),
        (b"PK\x03\x04" + bytes(100), "not a GGUF file: it begins with b'PK"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1: 2 and 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 1 << 60), "truncated or corrupt"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62), "truncated or corrupt"),
    ],
)
def test_what_is_no_gguf_file(tmp_path, content, words):
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        gguf.read_header(tmp_path / "m.gguf")


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path, write_gguf):
    whole = write_gguf(tmp_path / "m.gguf", "Q4_0").read_bytes()
    header = gguf.read_header(tmp_path / "m.gguf").tensors["token_embd.weight"].offset
    short = tmp_path / "short.gguf"
    for size in [*range(0, header, 7), header, header + 1, len(whole) - 32, len(whole) - 1]:
        short.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"truncated|not a GGUF file") as caught:
            gguf.read_header(short)
        assert "short.gguf" in str(caught.value)


@pytest.fixture(scope="module")
def small_file(tmp_path_factory, write_gguf):
    path = write_gguf(tmp_path_factory.mktemp("fuzz") / "m.gguf", "Q4_0", layers=1)
    return path, path.read_bytes(), gguf.read_header(path).tensors["token_embd.weight"].offset


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_corrupt_header_is_a_value_error_and_nothing_else(small_file, data):
    path, whole, header = small_file
    at = data.draw(st.integers(0, header - 1))
    noise = data.draw(st.binary(min_size=1, max_size=8))
    broken = path.with_name("broken.gguf")
    broken.write_bytes(whole[:at] + noise + whole[at + len(noise) :])
    try:
        load(broken)
    except ValueError as error:
        assert "broken.gguf" in str(error)  # noqa: PT017


def put(name, array, label="F32"):
    kind = reference.GGMLQuantizationType[label]
    return lambda tensors: tensors.__setitem__(name, (array, kind))


def not_a_number(tensors):
    tensors["blk.0.ffn_up.weight"][0][5, 5] = np.nan


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("blk.0.ffn_up.weight"), "lacks blk.0.ffn_up.weight"),
        (put("blk.0.attn_sinks.weight", np.ones(4, np.float32)), "attn_sinks.weight, which"),
        (put("output_norm.weight", np.ones(8, np.float32)), r"\(8,\) where .* \(256,\)"),
        (put("rope_freqs.weight", np.ones(8, np.float32)), "rotary frequencies are 32"),
        (not_a_number, "ffn_up.weight holds values that are not finite"),
    ],
)
def test_tensors_that_do_not_belong_together(tmp_path, change, words, write_gguf):
    path = write_gguf(tmp_path / "m.gguf", change=change)
    with pytest.raises(ValueError, match=words):
        load(path)


def test_an_absurd_number_of_layers_is_not_believed(tmp_path, write_gguf):
    path = write_gguf(tmp_path / "m.gguf", claimed_layers=1 << 31)
    with pytest.raises(ValueError, match="says it has 2147483648 layers and holds 12 tensors"):
        load(path)


def test_values_beyond_fp16_are_said_not_turned_into_infinity(tmp_path, write_gguf):
    path = write_gguf(tmp_path / "m.gguf", change=lambda t: t["output.weight"][0].fill(70000.0))
    load(path, torch.bfloat16)
    with pytest.raises(ValueError, match="exceed 65504: load it as bf16"):
        load(path, torch.float16)


def test_an_unsupported_tensor_type_is_named(tmp_path, write_gguf):
    raw = np.zeros((64, 256 // 32 * 18), dtype=np.uint8)
    change = put("output.weight", raw, "IQ4_NL")
    path = write_gguf(tmp_path / "m.gguf", change=change)
    with pytest.raises(ValueError, match=r"output.weight has the type IQ4_NL.*it loads F32"):
        gguf.read_header(path)


def test_an_unsupported_architecture_is_named(tmp_path, write_gguf):
    file = gguf.read_header(write_gguf(tmp_path / "m.gguf", architecture="gemma2"))
    with pytest.raises(ValueError, match="architecture 'gemma2', which the engine does not run"):
        _ = file.shape


def test_a_mixture_of_experts_is_named(tmp_path, write_gguf):
    keys = {"llama.expert_count": 8, "llama.expert_used_count": 2}
    file = gguf.read_header(write_gguf(tmp_path / "m.gguf", keys=keys))
    with pytest.raises(ValueError, match=r"m\.gguf is a model of architecture 'mixtral'"):
        _ = file.shape


def test_a_key_the_model_cannot_do_without_is_named(tmp_path, write_gguf):
    path = write_gguf(tmp_path / "m.gguf")
    content = path.read_bytes().replace(b"llama.context_length", b"llama.context_lengte")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"m\.gguf: .*'llama.context_length'"):
        load(path)


def test_one_part_of_a_split_model_is_refused(tmp_path, write_gguf):
    path = write_gguf(tmp_path / "m.gguf", keys={"split.count": 3})
    with pytest.raises(ValueError, match="one of 3 parts"):
        gguf.read_header(path)
