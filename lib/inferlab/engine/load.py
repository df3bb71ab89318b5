"""`load`: a model by name, file, folder or Hub id, after it was checked that it can run here."""

from __future__ import annotations

import dataclasses
import difflib
import re
from os import PathLike
from pathlib import Path

import torch

from inferlab.engine import device as devices
from inferlab.engine import kernels
from inferlab.engine.model import Model
from inferlab.engine.tokenizer import Tokenizer
from inferlab.engine.weights import contract, fetch, gguf, random, safetensors
from inferlab.theory import shapes
from inferlab.theory.units import si

DEFAULT = "smollm2-135m"
"""The model that `load()` loads: SmolLM2-135M-Instruct, on any machine, offline once fetched."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def load(
    source: str | PathLike[str] = DEFAULT,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    tokenizer: bool = True,
    progress: fetch.Progress | None = None,
    table: kernels.Table | None = None,
) -> Model:
    """A model with its real weights.

    source     a known name ("smollm2-135m"), a .gguf file, a folder with config.json and
               .safetensors, or a model of the Hugging Face Hub ("org/name")
    device     "auto", "cpu", "cuda", "cuda:1", "mps";  dtype "auto", "fp32", "bf16", "fp16":
               see `device.pick_device` and `device.pick_dtype` for what auto means
    tokenizer  False leaves the tokenizer away
    progress   called as progress(what, done, total) in bytes while something is fetched
    table      which kernels run where (made by `lab.ceilings.tune`); None: `kernels.default`

    Raises ValueError (unknown name, unsupported or damaged model, device or type not here),
    FileNotFoundError, MemoryError (predicted before anything is loaded), fetch.FetchError and
    ConnectionError (not on this machine and not to be fetched). Each says what to do.
    """
    where = devices.pick_device(device)
    kind = devices.pick_dtype(dtype, where)
    place = _locate(str(source), progress)
    if isinstance(place, str):
        place = safetensors.download(place, lambda shape: check_memory(shape, where, kind))
    if place.is_dir():
        checkpoint = safetensors.read_folder(place)
        shape = checkpoint.shape
        check_memory(shape, where, kind)
        words = Tokenizer.from_folder(place) if tokenizer else None
        weights = safetensors.load_weights(checkpoint, where, kind)
    else:
        file = gguf.read_header(place)
        shape = file.shape
        if source in fetch.MODELS:
            shape = dataclasses.replace(shape, name=str(source))
        check_memory(shape, where, kind)
        words = Tokenizer.from_gguf(file.metadata) if tokenizer else None
        weights = gguf.load_weights(file, shape, where, kind)
    return Model.create(shape, weights, words, str(source), table or _table(shape, where, kind))


def random_model(
    shape: shapes.ModelShape | str,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    seed: int = 0,
    table: kernels.Table | None = None,
) -> Model:
    """A model of a given shape, or of a published shape by name, with random weights.

    For time and memory: its text means nothing. Raises ValueError for an unknown name or a shape
    the engine does not compute, MemoryError if it does not fit.
    """
    shape = shapes.get(shape) if isinstance(shape, str) else shape
    where = devices.pick_device(device)
    kind = devices.pick_dtype(dtype, where)
    contract.check_shape(shape, shape.name)
    check_memory(shape, where, kind)
    weights = random.random_weights(shape, where, kind, seed)
    table = table or _table(shape, where, kind)
    return Model.create(shape, weights, None, f"random weights, seed {seed}", table)


def check_memory(
    shape: shapes.ModelShape,
    device: torch.device,
    dtype: torch.dtype,
    free: int | None = None,
) -> None:
    """Raises MemoryError, saying what would fit, if the weights do not fit into free memory.

    free  bytes free on the device; measured if not given. The weights need params x bytes per
    parameter; the KV cache comes on top and is checked where it is made.
    """
    free = devices.free_memory(device) if free is None else free
    needed = contract.nbytes(shape, dtype)
    if needed <= free:
        return
    name, room = devices.short_name(dtype), f"{si(free, 'B')} are free on {device}"
    halved = contract.nbytes(shape, torch.float16)
    if halved <= free:
        fits = f"16 bits a weight need {si(halved, 'B')} and fit: pass dtype='bf16' or 'fp16'"
    else:
        fits = _smaller(free, dtype)
    raise MemoryError(
        f"{shape.name} in {name} needs {si(needed, 'B')} for its {si(shape.params)} parameters and "
        f"{room}; {fits}"
    )


def _table(shape: shapes.ModelShape, device: torch.device, dtype: torch.dtype) -> kernels.Table:
    """The rule's kernels. Asked when the weights are loaded: a second layout of them is made only
    where it takes at most half of the memory that is still free.
    """
    roomy = 2 * contract.nbytes(shape, dtype) <= devices.free_memory(device)
    return kernels.default(device, dtype, copies=2 if roomy else 1)


def _smaller(free: int, dtype: torch.dtype) -> str:
    """Which published shapes would fit, the largest first."""
    zoo = [shapes.get(name) for name in shapes.names()]
    fitting = [s for s in zoo if contract.nbytes(s, dtype) <= free]
    if not fitting:
        return "no model of the zoo fits: free some memory or use another device"
    fitting.sort(key=lambda shape: -shape.params)
    return "what fits in this type: " + ", ".join(shape.name for shape in fitting[:3])


def _locate(source: str, progress: fetch.Progress | None) -> Path | str:
    """The file or folder of a model as a Path, or its Hub id as a str."""
    if source in fetch.MODELS:
        return fetch.resolve(source, progress)
    path = Path(source).expanduser()
    safetensors.refuse_pickle(path)
    if path.is_dir():
        return path
    if path.is_file():
        if path.suffix.lower() == ".safetensors":
            raise ValueError(
                f"{path.name} is one file of a Hugging Face model: give the folder that holds it "
                "together with config.json"
            )
        return path
    if path.suffix.lower() in (".gguf", ".safetensors") or source.startswith((".", "/", "~")):
        raise FileNotFoundError(f"there is no file or folder {path}")
    if _HUB_ID.fullmatch(source):
        return source
    raise ValueError(_unknown(source))


def _unknown(source: str) -> str:
    known = ", ".join(fetch.MODELS)
    options = (
        f"load takes a known name ({known}), the path of a .gguf file, a folder with config.json "
        "and .safetensors, or a Hub id like 'org/name'"
    )
    if source in shapes.names():
        return (
            f"{source!r} is a published shape whose weights are not fetched by name: "
            f"random_model({source!r}) makes it with random weights; {options}"
        )
    near = difflib.get_close_matches(source.lower(), [*fetch.MODELS, *shapes.names()], n=3)
    hint = f"near are {', '.join(near)}; " if near else ""
    return f"no model is named {source!r}: {hint}{options}"
