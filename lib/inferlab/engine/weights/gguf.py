"""GGUF files: the header read once, the tensors dequantized one by one into the wanted type.

The header is parsed here rather than by `gguf.GGUFReader`, which takes about two seconds for a
vocabulary of 49,152 tokens and trusts every length it finds; the block formats are those of
`gguf.quants`. Source: ggml/docs/gguf.md (file layout), convert_hf_to_gguf.py (row order of q, k).
"""

from __future__ import annotations

import dataclasses
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from gguf.quants import dequantize

from inferlab.engine.weights import contract
from inferlab.theory import shapes

TENSOR_TYPES = (
    "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K",
)  # fmt: skip
"""The tensor types that can be loaded."""

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""GGUF's names of the families that can be loaded; SmolLM2 and Mistral are stored as "llama"."""

_CHUNK = 1 << 24  # weights dequantized at a time: 64 MiB of fp32


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies: its type, its shape (outermost first), its bytes in the file."""

    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True)
class GGUFFile:
    """The header of a GGUF file: metadata (key -> value) and tensors (name -> TensorInfo)."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]

    @property
    def shape(self) -> shapes.ModelShape:
        """The model's description; what only the tensors tell (tied head, biases) is from them.

        Raises ValueError for a model the engine does not run, and for tensors that are missing,
        unknown or misshapen.
        """
        where = self.path.name
        kind = self.metadata.get("general.architecture")
        if kind not in ARCHITECTURES:
            raise ValueError(
                f"{where} is a model of architecture {kind!r}, which the engine does not run: it "
                f"runs {', '.join(ARCHITECTURES)} (Llama 2/3, SmolLM2, Mistral, Qwen2.5, Qwen3)"
            )
        found = {name: info.shape for name, info in self.tensors.items()}
        try:
            shape = shapes.from_gguf_metadata(self.metadata, tensors=found)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise ValueError(f"{where}: {error}") from None
        contract.check_shape(shape, where)
        contract.check_tensors(shape, found, where)
        return shape


def read_header(path: str | Path) -> GGUFFile:
    """The header of the GGUF file at `path`; no tensor is read.

    Raises FileNotFoundError; ValueError for a file that is no GGUF, is truncated or corrupt, is
    one part of a split model, or holds a tensor type that is not in TENSOR_TYPES.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if path.stat().st_size < 24:
        raise ValueError(f"{path.name} is not a GGUF file: it is only {path.stat().st_size} bytes")
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            metadata, tensors, end = _parse(_Cursor(data))
        except (struct.error, UnicodeDecodeError, OverflowError, IndexError, MemoryError) as error:
            raise ValueError(
                f"{path.name} is a truncated or corrupt GGUF file (its header ends in the middle "
                f"or makes no sense: {error}): fetch it again"
            ) from None
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
        size = len(data)
    if end > size:
        raise ValueError(
            f"{path.name} is truncated: its tensors end at byte {end} and the file at byte {size}, "
            "so fetch it again"
        )
    if int(metadata.get("split.count", 0)) > 1:
        raise ValueError(
            f"{path.name} is one of {metadata['split.count']} parts of a split model: join them "
            "with `llama-gguf-split --merge` and load the result"
        )
    return GGUFFile(path, metadata, tensors)


def load_weights(
    file: GGUFFile, shape: shapes.ModelShape, device: torch.device, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Every weight of `file` on `device` in `dtype`, GGUF name -> tensor, linear weights (out, in).

    One tensor is dequantized at a time, in blocks of rows, so the peak is the model in `dtype` plus
    64 MiB. For architecture "llama" the rows of q and k are put back into half-split rotary order
    (llama.cpp interleaves them). `rope_freqs.weight` stays fp32.
    Raises ValueError for a weight that is not finite.
    """
    heads = {"attn_q": shape.n_heads, "attn_k": shape.n_kv_heads}
    permuted = file.metadata["general.architecture"] == "llama"
    data = np.memmap(file.path, mode="r").view(np.ndarray)
    weights = {}
    for name, info in file.tensors.items():
        kind = torch.float32 if name == contract.ROPE_FREQS else dtype
        weight = _read(data, info, device, kind)
        stem = name.split(".")[2] if name.startswith("blk.") else ""
        if permuted and stem in heads:
            weight = unpermute(weight, heads[stem])
        contract.check_finite(name, weight, file.path.name)
        weights[name] = weight
    return weights


def unpermute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo llama.cpp's order of q and k rows, for a weight (H*Dh, D) or a bias (H*Dh,).

    llama.cpp stores a head's rows as 0, Dh/2, 1, Dh/2+1, ... (pairs that rotate together side by
    side); here they are 0 ... Dh-1, pairs half a head apart, as Hugging Face has them.
    """
    tail = weight.shape[1:]
    pairs = weight.reshape(heads, -1, 2, *tail)  # (H, Dh/2, 2, D)
    return pairs.transpose(1, 2).reshape(weight.shape)  # (H*Dh, D)


def _read(
    data: np.ndarray, info: TensorInfo, device: torch.device, dtype: torch.dtype
) -> torch.Tensor:
    rows = info.shape[0] if len(info.shape) > 1 else 1
    raw = data[info.offset : info.offset + info.nbytes].reshape(rows, -1)
    out = torch.empty((rows, prod(info.shape) // rows), dtype=dtype, device=device)
    step = max(1, _CHUNK // out.shape[1])
    for start in range(0, rows, step):
        with np.errstate(all="ignore"):  # a corrupt scale is found by check_finite
            block = dequantize(raw[start : start + step], info.type)
        block = block if block.flags.writeable else block.copy()  # F32 comes as the file itself
        out[start : start + step] = torch.from_numpy(block)
    return out.reshape(info.shape)


class _Cursor:
    """Reads little-endian values one after the other and never past the end."""

    SCALARS = {
        GGUFValueType.UINT8: "B", GGUFValueType.INT8: "b", GGUFValueType.UINT16: "H",
        GGUFValueType.INT16: "h", GGUFValueType.UINT32: "I", GGUFValueType.INT32: "i",
        GGUFValueType.FLOAT32: "f", GGUFValueType.UINT64: "Q", GGUFValueType.INT64: "q",
        GGUFValueType.FLOAT64: "d", GGUFValueType.BOOL: "?",
    }  # fmt: skip

    def __init__(self, data: mmap.mmap):
        self.data, self.at = data, 0

    def take(self, form: str) -> tuple:
        size = struct.calcsize("<" + form)
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += size
        return values

    def string(self) -> str:
        (length,) = self.take("Q")
        if length > len(self.data) - self.at:
            raise IndexError(f"a text of {length} bytes runs past the end")
        text = self.data[self.at : self.at + length]
        self.at += length
        return text.decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == GGUFValueType.STRING:
            return self.string()
        if kind == GGUFValueType.ARRAY:
            item, count = self.take("IQ")
            if count > len(self.data) - self.at:
                raise IndexError(f"a list of {count} items runs past the end")
            if item in self.SCALARS:
                return list(self.take(f"{count}{self.SCALARS[item]}"))
            return [self.value(item) for _ in range(count)]
        if kind not in self.SCALARS:
            raise IndexError(f"a value of unknown type {kind}")
        return self.take(self.SCALARS[kind])[0]


def _parse(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, TensorInfo], int]:
    """(metadata, tensors, end of the last tensor in bytes) of a GGUF file of version 2 or 3."""
    magic, version, n_tensors, n_keys = cursor.take("4sIQQ")
    if magic != b"GGUF":
        raise ValueError(f"this is not a GGUF file: it begins with {magic!r}")
    if version & 0xFFFF == 0:
        raise ValueError("this GGUF file is big-endian: only little-endian files can be loaded")
    if version not in (2, 3):
        raise ValueError(f"this GGUF file has version {version}: 2 and 3 can be loaded")
    metadata = {}
    for _ in range(n_keys):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.take("I")[0])
    infos = list(_infos(cursor, n_tensors))
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"the alignment {alignment!r} makes no sense: the file is corrupt")
    base = -(-cursor.at // alignment) * alignment
    tensors = {name: dataclasses.replace(i, offset=base + i.offset) for name, i in infos}
    if len(tensors) < n_tensors:
        raise ValueError("two tensors have the same name: the file is corrupt")
    return (
        metadata,
        tensors,
        max((t.offset + t.nbytes for t in tensors.values()), default=cursor.at),
    )


def _infos(cursor: _Cursor, count: int) -> Iterator[tuple[str, TensorInfo]]:
    for _ in range(count):
        name = cursor.string()
        (n_dims,) = cursor.take("I")
        if not 1 <= n_dims <= 4:
            raise IndexError(f"the tensor {name!r} has {n_dims} dimensions")
        dims = cursor.take(f"{n_dims}Q")[::-1]
        code, offset = cursor.take("IQ")
        types = {int(kind): kind for kind in GGMLQuantizationType}
        label = types[code].name if code in types else f"number {code}"
        if label not in TENSOR_TYPES:
            raise ValueError(
                f"the tensor {name} has the type {label}, which the engine does not load: it loads "
                f"{', '.join(TENSOR_TYPES)}"
            )
        weights, size = GGML_QUANT_SIZES[types[code]]
        if prod(dims) == 0 or dims[-1] % weights:
            raise IndexError(f"the tensor {name!r} of shape {dims} does not divide into blocks")
        yield name, TensorInfo(types[code], dims, offset, prod(dims) // weights * size)
