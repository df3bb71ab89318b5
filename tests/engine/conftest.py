"""GGUF files made by hand for the tests of the loader."""

import gguf as reference
import numpy as np
import pytest

K_BLOCKS = {"Q4_K": (144, (0, 2)), "Q5_K": (176, (0, 2)), "Q6_K": (210, (208,))}
DIMS = {"width": 256, "ff": 512, "heads": 4, "kv_heads": 2, "vocab": 64}


@pytest.fixture(scope="session")
def write_gguf():
    """write_gguf(path, label="F32", architecture="llama", change=None, layers=1, keys=None, …)."""
    return write


def quantized(rng, rows, columns, label):
    """Random weights of a type as GGUFWriter takes them: (array, its type or None for F32)."""
    if label in K_BLOCKS:  # the package can read K blocks, not write them: make the blocks
        size, scales = K_BLOCKS[label]
        raw = rng.integers(0, 256, (rows, columns // 256, size), dtype=np.uint8)
        for at in scales:  # fp16 numbers, which random bytes need not be
            values = rng.uniform(0.001, 0.01, (rows, columns // 256, 1)).astype(np.float16)
            raw[:, :, at : at + 2] = values.view(np.uint8)
        return raw.reshape(rows, -1), reference.GGMLQuantizationType[label]
    array = rng.normal(0, 0.2, (rows, columns)).astype(np.float32)
    kind = reference.GGMLQuantizationType[label]
    return (array if label == "F32" else reference.quants.quantize(array, kind)), kind


def write(
    path, label="F32", architecture="llama", change=None, layers=1, keys=None, claimed_layers=None
):
    """A small random model of one tensor type; `change` may alter {name: (array, type)}."""
    rng, d = np.random.default_rng(7), DIMS
    kv = d["width"] // d["heads"] * d["kv_heads"]
    linear = {"token_embd": (d["vocab"], d["width"]), "output": (d["vocab"], d["width"])}
    norms = ["output_norm"]
    for i in range(layers):
        sizes = {"attn_q": (d["width"], d["width"]), "attn_k": (kv, d["width"]),
                 "attn_v": (kv, d["width"]), "attn_output": (d["width"], d["width"]),
                 "ffn_gate": (d["ff"], d["width"]), "ffn_up": (d["ff"], d["width"]),
                 "ffn_down": (d["width"], d["ff"])}  # fmt: skip
        linear |= {f"blk.{i}.{name}": size for name, size in sizes.items()}
        norms += [f"blk.{i}.attn_norm", f"blk.{i}.ffn_norm"]
    f32 = reference.GGMLQuantizationType.F32
    tensors = {f"{n}.weight": quantized(rng, *size, label) for n, size in linear.items()}
    tensors |= {
        f"{n}.weight": (rng.uniform(0.5, 1.5, d["width"]).astype(np.float32), f32) for n in norms
    }
    if change:
        change(tensors)
    writer = reference.GGUFWriter(str(path), architecture)
    writer.add_block_count(claimed_layers or layers)
    writer.add_context_length(128)
    writer.add_embedding_length(d["width"])
    writer.add_feed_forward_length(d["ff"])
    writer.add_head_count(d["heads"])
    writer.add_head_count_kv(d["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(d["vocab"])
    for key, value in (keys or {}).items():
        writer.add_uint32(key, value)
    for name, (array, kind) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
