"""What a notebook runs with where the reader left it to the machine: device, type, model, scale.

The rule reads facts that can be made up, so that every branch is tested on any machine. Whatever
is not the first choice is said in `Choice.why`; nothing falls back in silence.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from inferlab.engine import device as devices
from inferlab.engine.load import DEFAULT
from inferlab.engine.weights import contract, safetensors
from inferlab.theory import roofline, shapes
from inferlab.theory.units import si

SCALES = ("ci", "laptop", "gpu")
"""How much a notebook does: what CI waits for, what a laptop does in minutes, what a GPU does."""

HUB_MODELS = {"Qwen/Qwen3-8B": "qwen3-8b", "Qwen/Qwen2.5-1.5B-Instruct": "qwen2.5-1.5b"}
"""Ungated safetensors models of the Hugging Face Hub and their shapes, the largest first.

Whether one is gated is asked of the Hub before it is taken; a gated one is passed over.
"""

TIMED = ("qwen2.5-0.5b", "smollm2-135m")
"""Shapes to time with random weights, the largest first: the larger, the more is the weights'."""

ROOM = 4_000_000_000
"""Bytes kept beside the weights: 16,000 tokens of qwen3-8b's cache (147 kB each) and the work of
a pass."""

WAIT = 5.0
"""Seconds the Hub has to answer in."""

Obstacle = Callable[[str, int], str]
"""obstacle(Hub id, bytes of weights) -> why it cannot be had now; "" if nothing is in the way."""


@dataclass(frozen=True)
class Choice:
    """What to run with: load(choice.model, choice.device, choice.dtype), at choice.scale.

    why  one sentence for each choice that was not asked for
    """

    device: str
    dtype: str
    model: str
    scale: str
    why: str


def choose(
    model: str | os.PathLike[str] = "auto",
    device: str | torch.device = "auto",
    scale: str = "auto",
    dtype: str | torch.dtype = "auto",
    *,
    have: devices.Facts | None = None,
    free: Callable[[torch.device], int] = devices.free_memory,
    obstacle: Obstacle | None = None,
) -> Choice:
    """The choices a reader made, and for each "auto" what suits this machine.

    device, dtype  as `engine.device.pick_device` and `pick_dtype` have it
    scale          "ci" where INFERLAB_CI is set, else "gpu" on CUDA and "laptop" elsewhere
    model          on CUDA the largest of HUB_MODELS that fits beside ROOM, the larger one only
                   where bf16 is native; the small default model elsewhere, at scale "ci", and
                   where the Hub has an obstacle
    have, free, obstacle  what is asked of the machine and the Hub; tests make them up

    Raises ValueError for a device, type or scale that is not to be had.
    """
    have = have or devices.facts()
    where = devices.pick_device(device, have)
    kind = devices.pick_dtype(dtype, where, have)
    size = pick_scale(scale, where)
    why = []
    if str(dtype) == "auto":
        why.append(_why_type(where, kind, have))
    name = os.fspath(model)
    if name == "auto":
        name, reasons = _pick_model(where, kind, size, have, free, obstacle or hub_obstacle)
        why += reasons
    return Choice(str(where), devices.short_name(kind), name, size, " ".join(why))


def pick_scale(
    scale: str, device: torch.device, environment: Mapping[str, str] = os.environ
) -> str:
    """The scale asked for; for "auto" what the surroundings are. Raises ValueError for others."""
    if scale in SCALES:
        return scale
    if scale != "auto":
        raise ValueError(f"unknown scale {scale!r}: there are auto, {', '.join(SCALES)}")
    if environment.get("INFERLAB_CI", "0") not in ("", "0"):
        return "ci"
    return "gpu" if device.type == "cuda" else "laptop"


def pick_shape(
    name: str, machine: roofline.Machine, dtype: str, tokens: int, seconds: float = 0.6
) -> str:
    """The shape asked for; for "auto" the largest of TIMED that reads a prompt fast enough.

    That is: of which a prefill pass of `tokens` tokens takes at most `seconds` at the ceilings of
    `machine` in `dtype`; the smallest where none does.
    """
    if name != "auto":
        return name
    kinds = {"weight_dtype": dtype, "kv_dtype": dtype}
    for other in TIMED[:-1]:
        if roofline.prefill_time(shapes.get(other), machine, prompt=tokens, **kinds) <= seconds:
            return other
    return TIMED[-1]


def hub_obstacle(repo: str, nbytes: int) -> str:
    """What keeps a model of the Hub from being loaded now: the disk, the network, its terms.

    "" where it is on this machine already, whole, or the Hub answers within WAIT seconds that it
    can be fetched and the disk has room.
    """
    from huggingface_hub import constants

    if _cached(repo):
        return ""
    place = Path(constants.HF_HUB_CACHE)
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    room = shutil.disk_usage(there).free
    if room < nbytes + ROOM:
        return f"the disk has {si(room, 'B')} free"
    return _answer(repo)


def _pick_model(
    where: torch.device,
    kind: torch.dtype,
    scale: str,
    have: devices.Facts,
    free: Callable[[torch.device], int],
    obstacle: Obstacle,
) -> tuple[str, list[str]]:
    """(model, why): the first of HUB_MODELS that fits and can be had, else the default."""
    if scale == "ci":
        return DEFAULT, [f"At scale ci the model is {DEFAULT}, the same on every machine."]
    if where.type != "cuda":
        return DEFAULT, [f"Without CUDA the model is {DEFAULT}, which is small enough for any CPU."]
    room, native = free(where), have.gpus[where.index or 0].ampere
    reasons = []
    for number, (repo, shape) in enumerate(HUB_MODELS.items()):
        last = number == len(HUB_MODELS) - 1
        nbytes = contract.nbytes(shapes.get(shape), kind)
        if nbytes + ROOM > room or not (native or last):
            continue
        trouble = obstacle(repo, nbytes)
        if not trouble:
            words = f"{repo} ({si(nbytes, 'B')}) is the largest of ours that suits this GPU."
            return repo, [*reasons, words if not reasons else f"So it is {repo}."]
        reasons.append(f"{repo} ({si(nbytes, 'B')}) would suit this GPU, but {trouble}.")
    if not reasons:
        reasons = [f"{si(room, 'B')} are free on this GPU, too little for our larger models."]
    return DEFAULT, [*reasons, f"So the model is {DEFAULT}."]


def _why_type(where: torch.device, kind: torch.dtype, have: devices.Facts) -> str:
    name = devices.short_name(kind)
    if where.type == "cpu":
        has = "multiplies" if have.cpu_bf16 else "has no arithmetic for"
        return f"Computed in {name}, since this CPU {has} bf16."
    if where.type == "mps":
        return f"Computed in {name}, which every Apple GPU multiplies."
    gpu = have.gpus[where.index or 0]
    if gpu.ampere:
        return f"Computed in {name}, since {gpu.name} multiplies bf16."
    return (
        f"Computed in {name}, since {gpu.name} (compute capability "
        f"{gpu.capability[0]}.{gpu.capability[1]}) has neither bf16 nor FlashAttention, which "
        "take 8.0."
    )


def _cached(repo: str) -> bool:
    """Whether all files of a model are in the Hub's cache on this machine."""
    from huggingface_hub import snapshot_download

    try:
        safetensors.read_folder(snapshot_download(repo, local_files_only=True))
    except (OSError, ValueError):  # not there, or there in part
        return False
    return True


def _answer(repo: str) -> str:
    """Ask the Hub about a model, for about WAIT seconds at most; "" where anyone may have it."""
    from huggingface_hub import HfApi

    said: list[str] = []

    def ask() -> None:
        try:
            gated = HfApi().model_info(repo, timeout=WAIT).gated
        except Exception as error:  # the Hub's client raises errors of several libraries
            words = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            said.append(f"the Hugging Face Hub cannot be reached ({words})")
        else:
            said.append("it is gated now" if gated else "")

    asking = threading.Thread(target=ask, daemon=True)  # looking a name up knows no time limit
    asking.start()
    asking.join(WAIT + 1)
    return said[0] if said else f"the Hugging Face Hub did not answer in {WAIT:.0f} seconds"
