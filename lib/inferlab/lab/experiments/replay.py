"""Recording runs: one request with and without a cache, in two dtypes, alone and beside others.

A request of P tokens read and G written takes one prefill pass, which yields the first token, and
G − 1 decode passes. Passes are counted where they are made (`cache.passes`), never derived.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from inferlab.engine.generate import generate
from inferlab.engine.load import load
from inferlab.engine.model import Model
from inferlab.lab.meters import timed
from inferlab.lab.recordings import Recording, Recordings, collect, save
from inferlab.lab.records import provenance

__all__ = [
    "EVERY", "PLAIN", "Ask", "Recording", "Recordings", "Setting", "collect", "record", "save",
]  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """How a request is run. dtype: a name, "as loaded", or "another" (fp32; bf16 or, on a GPU,
    fp16 for a model that is fp32). batch: so many copies of the request run side by side.
    """

    dtype: str = "as loaded"
    cache: bool = True
    batch: int = 1


PLAIN = (Setting(),)
EVERY = (*PLAIN, Setting(cache=False), Setting(batch=8), Setting(dtype="another"))
"""One change at a time against PLAIN: no KV cache, eight at once, another dtype."""


@dataclass(frozen=True)
class Ask:
    """A prompt as a user writes it, the most tokens to answer with, and a short name of it."""

    prompt: str
    max_tokens: int = 64
    label: str = ""


def record(
    model: Model,
    asks: Iterable[Ask | tuple],
    settings: Sequence[Setting] = PLAIN,
    *,
    rounds: int = 1,
    progress: Callable[[Recording], None] = lambda done: None,
) -> Recordings:
    """Run each request in each setting, greedy, and record it.

    model     with its tokenizer; for another dtype it is loaded once more from `model.source`
    asks      `Ask`, or (prompt, max_tokens); a model with a chat template gets its template
    rounds    each is run so often after a short run that is not counted; the round of median
              length is kept, whole
    progress  called with each recording when it is done

    A dtype in which the model does not fit into memory is left out, and the result says so.
    Raises ValueError without a tokenizer, for no rounds, an empty prompt or an answer of no token.
    """
    if model.tokenizer is None:
        raise ValueError("a recording shows text: load the model with its tokenizer")
    if rounds < 1:
        raise ValueError(f"rounds={rounds}: at least one run must be recorded")
    asked = [ask if isinstance(ask, Ask) else Ask(*ask) for ask in asks]
    named = [(_dtype(model, setting), setting) for setting in settings]
    made, left_out = {}, []
    for dtype, group in groupby(sorted(named, key=lambda pair: pair[0]), lambda pair: pair[0]):
        try:
            same = dtype == model.dtype_name
            one = model if same else load(model.source, model.device, dtype)
        except MemoryError as why:
            left_out.append(f"Not recorded in {dtype}: {why}.")
            continue
        for _, setting in group:
            for ask in asked:
                made[ask, setting] = _typical(one, ask, setting, rounds)
                progress(made[ask, setting])
    order = [(ask, setting) for ask in asked for setting in settings]
    return Recordings(tuple(made[pair] for pair in order if pair in made), tuple(left_out))


def _typical(model: Model, ask: Ask, setting: Setting, rounds: int) -> Recording:
    """The run of median length among `rounds`."""
    tokenizer = model.tokenizer
    if not ask.prompt.strip():
        raise ValueError("the prompt is empty: nothing could be shown of it")
    talk = [{"role": "user", "content": ask.prompt}]
    ids = tokenizer.chat(talk) if tokenizer.template else tokenizer.encode(ask.prompt, bos=True)
    make = model.cache if setting.cache else model.no_cache
    cache = make(setting.batch, len(ids) + ask.max_tokens)
    _once(model, cache, ids, min(2, ask.max_tokens), setting.batch)
    runs = [_once(model, cache, ids, ask.max_tokens, setting.batch) for _ in range(rounds)]
    tokens, times, passes = sorted(runs, key=lambda run: run[1][-1])[rounds // 2]
    how = {
        "model": model.shape.name, "dtype": model.dtype_name, "device": str(model.device),
        "cache": setting.cache, "batch": setting.batch, "max_tokens": ask.max_tokens,
        "rounds": rounds, "warmup": 1, "kernels": model.table,
    }  # fmt: skip
    where = provenance(str(model.device))
    label = ask.label or _short(ask.prompt)
    return Recording(
        _name(label, ask.prompt, len(ids), how, where), label, ask.prompt,
        _text(tokenizer, ids), _text(tokenizer, tokens), times, passes, how, where,
    )  # fmt: skip


def _once(model: Model, cache, ids: list[int], max_tokens: int, batch: int) -> tuple[tuple, ...]:
    """Tokens of the first sequence, when each was there, and the passes made until then."""
    cache.clear()
    cache.passes = 0
    steps = generate(model, [ids] * batch, max_tokens, stop=model.tokenizer.eos, cache=cache)
    found = []
    for step, when in timed(steps, str(model.device)):
        found.append((step.tokens[0], when, cache.passes))
        if step.ended[0]:
            break
    return tuple(zip(*found, strict=True))


def _text(tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    """The text that each token completes, control tokens written out."""
    stream = tokenizer.stream(special=True)
    pieces = [stream.push(token) for token in ids]
    return (*pieces[:-1], pieces[-1] + stream.flush())


def _dtype(model: Model, setting: Setting) -> str:
    if setting.dtype == "as loaded":
        return model.dtype_name
    if setting.dtype != "another":
        return setting.dtype
    if model.dtype_name != "fp32":
        return "fp32"
    return "bf16" if model.device.type == "cpu" else "fp16"


def _short(text: str, limit: int = 48) -> str:
    """The prompt on one line, cut after a word."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[:limit].rsplit(" ", 1)[0] + " …"


def _name(label: str, prompt: str, read: int, how: Mapping, where: Mapping) -> str:
    """An id that another run of the same on the same machine shares."""
    slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:32]
    unsaid = [prompt, how["model"], how["device"], where["cpu"], where.get("accelerator", "")]
    digest = hashlib.sha256(json.dumps(unsaid).encode()).hexdigest()[:8]
    cache = "cache" if how["cache"] else "no-cache"
    rest = (read, how["max_tokens"], how["dtype"], cache, how["batch"], digest)
    return "-".join([slug, *map(str, rest)])
