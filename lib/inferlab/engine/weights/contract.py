"""What every loader promises: the tensors the shape calls for, whole, finite, in one data type."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from inferlab.theory import shapes

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
"""The model families the engine computes, as `ModelShape.architecture` names them."""

ROPE_FREQS = "rope_freqs.weight"
"""Divisors of the rotary frequencies, one a pair of channels, fp32 always: no weight, a table."""


def check_shape(shape: shapes.ModelShape, where: str) -> None:
    """Raises ValueError, naming what is strange, if the engine does not compute this model."""
    if shape.architecture not in ARCHITECTURES:
        raise ValueError(
            f"{where} is a model of architecture {shape.architecture!r}, which the engine does not "
            f"run: it runs {', '.join(ARCHITECTURES)} (Llama 2/3, SmolLM2, Mistral, Qwen2.5, Qwen3)"
        )
    scaling = shape.rope_scaling.kind if shape.rope_scaling else None
    strange = [
        words
        for present, words in (
            (shape.n_experts, "experts (mixture of experts)"),
            (shape.kv_lora_rank, "latent attention (MLA)"),
            (shape.learned_positions, "learned positions"),
            (not shape.gated_mlp, "an MLP without a gate"),
            (shape.norm != "rms" or shape.norm_bias, "norms other than RMS without bias"),
            (shape.activation != "silu", f"the activation {shape.activation}"),
            (shape.parallel_blocks, "attention and MLP side by side"),
            (shape.rope_theta is None, "no rotary positions"),
            (scaling not in (None, "llama3", "linear"), f"{scaling} RoPE scaling"),
        )
        if present
    ]
    if strange:
        raise ValueError(
            f"{where} has {' and '.join(strange)}: the engine runs dense models with rotary "
            "positions, RMS norms and a gated SiLU MLP; the theory still counts such a model"
        )


def check_tensors(
    shape: shapes.ModelShape, found: Mapping[str, tuple[int, ...]], where: str
) -> None:
    """Raises ValueError unless `found` (GGUF name -> shape) is exactly what `shape` calls for.

    A tensor the engine knows nothing of is an error too: a model computed without it would be
    another model.
    """
    if shape.n_layers > len(found):  # before a corrupt number is believed and written out
        raise ValueError(
            f"{where} says it has {shape.n_layers} layers and holds {len(found)} tensors: it is "
            "incomplete or corrupt"
        )
    wanted = shapes.weight_shapes(shape)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(
            f"{where} lacks {_some(missing)} of the {len(wanted)} tensors of this model: the file "
            "is incomplete or of another architecture than it says"
        )
    extra = [name for name in found if name not in wanted and name != ROPE_FREQS]
    if extra:
        raise ValueError(
            f"{where} holds {_some(extra)}, which the engine does not know: computed without it "
            "the model would be another one"
        )
    for name, dims in wanted.items():
        if tuple(found[name]) != dims:
            raise ValueError(
                f"{where}: {name} has the shape {tuple(found[name])} where the model's description "
                f"calls for {dims}: the file is corrupt or its metadata are wrong"
            )
    if ROPE_FREQS in found and tuple(found[ROPE_FREQS]) != (shape.head_dim // 2,):
        raise ValueError(
            f"{where}: {ROPE_FREQS} has the shape {tuple(found[ROPE_FREQS])} where the rotary "
            f"frequencies are {shape.head_dim // 2}: the file is corrupt"
        )


def check_finite(name: str, weight: torch.Tensor, where: str) -> None:
    """Raises ValueError if a weight holds infinities or NaN in the type it was loaded in."""
    low, high = torch.aminmax(weight)  # one pass; NaN carries through
    if not (torch.isfinite(low) and torch.isfinite(high)):
        raise ValueError(
            f"{where}: {name} holds values that are not finite in {weight.dtype}: the file is "
            "corrupt, or (fp16) its values exceed 65504: load it as bf16 or fp32"
        )


def nbytes(shape: shapes.ModelShape, dtype: torch.dtype) -> int:
    """Bytes the weights of `shape` take in `dtype`: parameters x bytes per parameter."""
    return shape.params * dtype.itemsize


def _some(names: list[str]) -> str:
    listed = ", ".join(names[:3])
    return listed if len(names) <= 3 else f"{listed} and {len(names) - 3} more"
