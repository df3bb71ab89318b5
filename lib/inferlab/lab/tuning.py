"""tune(): which twin of a kernel is faster here, found by trying, and remembered for this machine.

`engine.kernels.pick` reads the table; without one, the documented default (`kernels.default`) runs.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import torch

from inferlab import data
from inferlab.data import write_atomically
from inferlab.engine import kernels
from inferlab.engine.device import short_name
from inferlab.engine.kvcache import KVCache
from inferlab.engine.model import Model, forward
from inferlab.engine.operands import Weights
from inferlab.lab import host
from inferlab.lab.intervals import MIN_SAMPLES, ratio
from inferlab.lab.meters import Clock, interleave
from inferlab.lab.probes import working_set
from inferlab.theory.shapes import ModelShape

MARGIN = 0.02
"""A twin replaces the default where the whole interval of its time ratio is below 1 - MARGIN."""

# (batch, new tokens, tokens in the cache) of the step that stands for a regime.
_STEPS = {
    "linear": {"gemv": (1, 1, 64), "small": (4, 1, 64), "gemm": (1, 128, 0)},
    "attention": {"gemv": (1, 1, 512), "small": (1, 8, 512), "gemm": (1, 256, 0)},
}
_HOPELESS = 1.5  # a twin this much slower than the best of two rounds is not tried further


def tune(
    model: Model, save: bool = True, clock: Clock = time.perf_counter
) -> dict[str, dict[str, str]]:
    """The kernel table for this machine, this shape and this dtype, measured: what
    `kernels.pick` reads.

    For every operation and regime a step of the model is run with each twin that exists here, in
    turn, round by round. The default stays unless another is faster by more than the noise: its
    paired time ratio, with its 95 % interval, lies below 1 - MARGIN. As many layers are run as
    outgrow the last-level cache, on the model's own weights; that takes that much memory once
    more, per layout. save: keep the table with its timings in `data.cache_dir()` (see `tuned`).
    """
    trial = _trial(model)
    table, found = kernels.default(model.device, model.dtype), {}
    for op, regimes in _STEPS.items():
        for regime, size in regimes.items():
            usual = table[op][regime]
            runs = dict(_runs(trial, op, regime, size))
            times = _contest(runs, usual, str(model.device), clock)
            table[op][regime], found[f"{op} {regime}"] = _choose(times, usual)
    if save:
        _remember(model, table, found)
    return table


def tuned(
    shape: ModelShape, device: str | torch.device, dtype: torch.dtype
) -> dict[str, dict[str, str]] | None:
    """The table that `tune` saved for this machine, its present thread count, this shape and
    dtype; None where there is none, or the file cannot be read (tune again).
    """
    try:
        return _saved(_file(device))[_key(shape, dtype)]["table"]
    except KeyError:
        return None


def _trial(model: Model) -> Model:
    """The first layers of the model, its head and embedding, with every layout of the weights."""
    shape, kinds = model.shape, kernels.candidates(model.device, model.dtype)["linear"]
    layer = sum(
        tensor.numel() * tensor.element_size()
        for name, tensor in model.weights.items()
        if name.startswith("blk.0.")
    )
    count = min(shape.n_layers, math.ceil(working_set(str(model.device)) / layer))
    beyond = tuple(f"blk.{i}." for i in range(count, shape.n_layers))
    names = [name for name in model.weights if not name.startswith(beyond or "\0")]
    part = {name: model.weights[name] for name in names}
    layouts = {"linear": {kind: kind for kind in kinds}}
    short = replace(shape, n_layers=count)
    return replace(model, shape=short, weights=Weights(part, count, layouts))


def _runs(
    trial: Model, op: str, regime: str, size: tuple[int, int, int]
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each twin of `op` with a function that makes one step with it, the rest by default."""
    batch, new, past = size
    past = min(past, trial.shape.max_context - new)
    device, dtype = trial.device, trial.dtype
    tokens = torch.arange(batch * new, device=device).reshape(batch, new) % trial.shape.vocab
    cache = KVCache(trial.shape, batch, past + new, dtype, device)
    cache.k.normal_()
    cache.v.normal_()

    def step(model: Model) -> None:
        cache.lengths = [past] * batch
        forward(model, tokens, cache)

    for kind in kernels.candidates(device, dtype)[op]:
        table = kernels.pick({op: {regime: kind}}, device, dtype)
        model = replace(trial, table=table)
        yield kind, lambda model=model: step(model)


def _contest(
    runs: dict[str, Callable[[], object]], usual: str, device: str, clock: Clock
) -> dict[str, tuple[float, ...]]:
    """Seconds of each twin by round; those that are far behind after two rounds are left out."""
    first = {kind: min(t) for kind, t in interleave(runs, 2, device=device, clock=clock).items()}
    limit = _HOPELESS * min(first.values())
    kept = {kind: run for kind, run in runs.items() if kind == usual or first[kind] <= limit}
    if len(kept) == 1:
        return {usual: (first[usual],)}
    return interleave(kept, MIN_SAMPLES, warmup=0, device=device, clock=clock)


def _choose(times: dict[str, tuple[float, ...]], usual: str) -> tuple[str, dict]:
    """The twin to use, and the median seconds of all that were tried to the end."""
    medians = {kind: statistics.median(samples) for kind, samples in times.items()}
    faster = [
        kind
        for kind in times
        if kind != usual and ratio(times[kind], times[usual]).high < 1 - MARGIN
    ]
    return min(faster, key=medians.__getitem__, default=usual), medians


def _remember(model: Model, table: dict, found: dict) -> None:
    file = _file(model.device)
    saved = _saved(file)
    saved[_key(model.shape, model.dtype)] = {
        "table": table,
        "seconds": found,
        "shape": model.shape.name,
        "dtype": short_name(model.dtype),
        "provenance": host.provenance(str(model.device)),
    }
    write_atomically(file, json.dumps({"schema": 1, "tables": saved}, indent=1) + "\n")


def _saved(file: Path) -> dict:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    known = isinstance(content, dict) and content.get("schema") == 1
    return content["tables"] if known and isinstance(content.get("tables"), dict) else {}


def _file(device: str | torch.device) -> Path:
    facts = host.machine(str(device))
    return data.cache_dir() / f"tune-{_digest(facts)}.json"


def _key(shape: ModelShape, dtype: torch.dtype) -> str:
    return f"{shape.name} {short_name(dtype)} {_digest(asdict(shape))}"


def _digest(facts: dict) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
