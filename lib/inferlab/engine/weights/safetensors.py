"""Hugging Face checkpoints in safetensors, from a local folder or from the Hub.

Only safetensors: a pickle checkpoint runs code of whoever made it when it is opened.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from inferlab.engine.weights import contract
from inferlab.theory import shapes

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Endings of pickle checkpoints, which are refused."""

_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_NAME = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
_TABLE = re.compile(r".*rotary_emb\.inv_freq")  # old checkpoints store what is computed here
_STORED = ("F32", "F16", "BF16")
_WANTED = ("config.json", "generation_config.json", "*.safetensors", "model.safetensors.index.json",
           "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """A folder that was looked through: its config and, for each GGUF name, file and HF name."""

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, tuple[Path, str]]
    shape: shapes.ModelShape


def read_folder(folder: str | Path) -> Checkpoint:
    """The checkpoint in `folder`; no weight is read.

    Raises FileNotFoundError for missing files; ValueError for a pickle checkpoint, a damaged file,
    a quantized checkpoint, a model the engine does not run, missing or misshapen tensors.
    """
    folder = Path(folder)
    files = _weight_files(folder)
    config = read_config(folder)
    shape = describe(config, folder.name)
    tensors, found = {}, {}
    for file in files:
        for theirs, dims in _headers(file).items():
            ours = gguf_name(theirs)
            if ours is None or (ours == "output.weight" and shape.tied_head):
                continue
            tensors[ours], found[ours] = (file, theirs), dims
    contract.check_tensors(shape, found, str(folder))
    return Checkpoint(folder, config, tensors, shape)


def load_weights(
    checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Every weight on `device` in `dtype`, GGUF name -> tensor; one tensor is converted at a time.

    Raises ValueError for a damaged file or a weight that is not finite.
    """
    weights = {}
    for file in {file: None for file, _ in checkpoint.tensors.values()}:
        names = {ours: hf for ours, (place, hf) in checkpoint.tensors.items() if place == file}
        with _opened(file) as stored:
            for ours, theirs in names.items():
                weight = stored.get_tensor(theirs).to(device=device, dtype=dtype, copy=True)
                contract.check_finite(ours, weight, file.name)
                weights[ours] = weight
    return weights


def gguf_name(name: str) -> str | None:
    """The GGUF name of a Hugging Face tensor of the Llama family; None for what is not a weight.

    A name that is not known is returned as it is, so that whoever checks the names can say it.
    """
    if _TABLE.fullmatch(name):
        return None
    match = _NAME.fullmatch(name)
    if match and match[2] in _LAYER:
        return f"blk.{match[1]}.{_LAYER[match[2]]}.{match[3]}"
    return _TOP.get(name, name)


def describe(config: dict[str, Any], where: str) -> shapes.ModelShape:
    """The shape of a config.json. Raises ValueError if the engine does not run such a model."""
    quantized = config.get("quantization_config")
    if quantized:
        method = quantized.get("quant_method", "unknown") if isinstance(quantized, dict) else "?"
        raise ValueError(
            f"{where} is quantized ({method}): of Hugging Face checkpoints the engine loads those "
            "in fp32, bf16 and fp16; for fewer bits load a GGUF file"
        )
    try:
        shape = shapes.from_hf_config(config)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"{where}: {error}") from None
    contract.check_shape(shape, where)
    return shape


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a folder. Raises FileNotFoundError or ValueError."""
    file = folder / "config.json"
    if not file.is_file():
        raise FileNotFoundError(f"{folder} has no config.json, which says what model it holds")
    return _json(file)


def download(
    repo: str,
    accept: Callable[[shapes.ModelShape], None] = lambda shape: None,
    snapshot: Callable | None = None,
) -> Path:
    """The folder of a model of the Hugging Face Hub ("org/name"), fetched into the Hub's cache.

    Only config, tokenizer and safetensors are fetched, the config first: `accept` is called with
    the shape and may raise before any weight is fetched. Raises ConnectionError if the Hub cannot
    be reached or has no such model, ValueError for a model the engine does not run.
    """
    if snapshot is None:
        from huggingface_hub import snapshot_download as snapshot
    small = [name for name in _WANTED if not name.endswith(".safetensors")]
    folder = _fetched(snapshot, repo, allow_patterns=small)
    accept(describe(read_config(folder), repo))
    return _fetched(
        snapshot, repo, allow_patterns=list(_WANTED), ignore_patterns=["*/*", "consolidated*"]
    )


def _fetched(snapshot: Callable, repo: str, **patterns: list[str]) -> Path:
    try:
        return Path(snapshot(repo, **patterns))
    except Exception as error:  # the Hub's client raises errors of several libraries
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise OSError(errno.ENOSPC, f"the disk is full: {repo} cannot be kept") from error
        raise ConnectionError(
            f"{repo} could not be fetched from the Hugging Face Hub ({_first_line(error)}): check "
            "the name and the network; a gated model needs `hf auth login` and its terms accepted"
        ) from error


def refuse_pickle(path: Path) -> None:
    """Raises ValueError if `path` is a pickle checkpoint."""
    if path.suffix.lower() in PICKLES:
        raise ValueError(
            f"{path.name} is a pickle checkpoint, which runs code of whoever made it when it is "
            "opened: load a .safetensors or .gguf version of the model instead"
        )


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = _json(index).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise ValueError(f"{index} has no weight_map: the index is damaged")
        names = sorted({str(name) for name in shards.values()})
        if any(Path(name).name != name for name in names):
            raise ValueError(f"{index} names files outside its folder: such an index is refused")
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise FileNotFoundError(f"{folder} lacks {', '.join(missing[:3])}: fetch it again")
        return [folder / name for name in names]
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        for file in sorted(folder.iterdir()):
            refuse_pickle(file)
        raise FileNotFoundError(f"{folder} holds no .safetensors file")
    return files


def _headers(file: Path) -> dict[str, tuple[int, ...]]:
    """HF name -> shape of every tensor in a file, whose types are checked."""
    found = {}
    with _opened(file) as stored:
        for name in list(stored.keys()):
            part = stored.get_slice(name)
            if part.get_dtype() not in _STORED:
                raise ValueError(
                    f"{file.name}: {name} is stored as {part.get_dtype()}, which the engine does "
                    f"not load: it loads {', '.join(_STORED)}"
                )
            found[name] = tuple(part.get_shape())
    return found


class _opened:
    """safe_open whose errors say what to do."""

    def __init__(self, file: Path):
        self.file = file

    def __enter__(self):
        try:
            self.handle = safe_open(str(self.file), framework="pt", device="cpu")
            return self.handle.__enter__()
        except (SafetensorError, OSError) as error:
            raise _damaged(self.file, error) from None

    def __exit__(self, kind, error, trace):
        self.handle.__exit__(kind, error, trace)
        if isinstance(error, SafetensorError):
            raise _damaged(self.file, error) from None


def _damaged(file: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{file.name} is a truncated or corrupt safetensors file ({_first_line(error)}): fetch it "
        "again"
    )


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON ({error}): fetch it again") from None
    if not isinstance(content, dict):
        raise ValueError(f"{file} holds no JSON object: fetch it again")
    return content


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
