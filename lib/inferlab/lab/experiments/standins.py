"""The models that trials run on, made once in a process and kept: making one outlasts a trial.

`small` is the default model with its real weights, where tokens matter. `wide` is a shape in which
weights outweigh everything else, with random weights: time does not depend on what they say.
dtype "auto" is what the device multiplies itself (`engine.device.pick_dtype`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import torch

from inferlab.engine.generate import decode, prefill
from inferlab.engine.kvcache import KVCache
from inferlab.engine.load import DEFAULT, load, random_model
from inferlab.engine.model import Model
from inferlab.lab.probes import Probe
from inferlab.lab.rates import fastest_read as fastest_probe
from inferlab.lab.rates import read_ceiling
from inferlab.theory import shapes
from inferlab.theory.shapes import ModelShape

TEXT = (
    "The water in the kettle is hot because the stove gives it energy, and the steam that rises "
    "from it carries that energy into the room."
)
"""A sentence to read, ours."""


def wide_shape(layers: int = 4) -> ModelShape:
    """Llama-3.2-1B cut to so many of its 16 layers; with four, 0.506 B parameters."""
    whole = shapes.get("llama-3.2-1b")
    return replace(whole, n_layers=layers, name=f"{whole.name}, {layers} layers")


@functools.lru_cache(maxsize=2)
def small(dtype: str = "fp32", device: str = "cpu") -> Model:
    """SmolLM2-135M-Instruct with its weights and tokenizer."""
    return load(DEFAULT, device, dtype)


@functools.lru_cache(maxsize=3)
def wide(layers: int = 4, dtype: str = "auto", device: str = "cpu") -> Model:
    """`wide_shape(layers)` with random weights."""
    return random_model(wide_shape(layers), device, dtype)


@functools.lru_cache(maxsize=1)
def memory_read(device: str = "cpu") -> Probe:
    """The read of memory that a decode pass is held against."""
    return read_ceiling(device)


@functools.lru_cache(maxsize=1)
def fastest_read(device: str = "cpu") -> Probe:
    """The fastest read of memory: more than it cannot be read in the time it takes."""
    return fastest_probe(device)


@functools.lru_cache(maxsize=3)
def tiny(dtype: str = "auto", device: str = "cpu") -> Model:
    """24 layers of next to no width, 5 M parameters: many operations and little to read."""
    return _narrower(24, 128, 4, 2, 32, 384, 512, "24 narrow layers", device, dtype)


@functools.lru_cache(maxsize=1)
def keyed(dtype: str = "auto", device: str = "cpu") -> Model:
    """Narrow layers in which every head has keys and values of its own: 26 M parameters, which the
    cache outweighs from some 3,200 tokens on.
    """
    return _narrower(8, 512, 8, 8, 64, 1408, 512, "8 layers of width 512", device, dtype)


@functools.lru_cache(maxsize=2)
def slim(layers: int = 2, dtype: str = "auto", device: str = "cpu") -> Model:
    """Layers of width 1,024; of two, 27 M parameters, whole requests take a tenth of a second."""
    name = f"{layers} layers of width 1,024"
    return _narrower(layers, 1024, 16, 4, 64, 2816, 2048, name, device, dtype)


def _narrower(
    layers: int, d_model: int, n_heads: int, n_kv_heads: int, head_dim: int, d_ff: int, vocab: int,
    name: str, device: str, dtype: str,
) -> Model:  # fmt: skip
    """`wide_shape` in other widths, with random weights."""
    shape = replace(
        wide_shape(layers), d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads,
        head_dim=head_dim, d_ff=d_ff, vocab=vocab, name=name,
    )  # fmt: skip
    return random_model(shape, device, dtype)


def ids(model: Model, count: int, seed: int = 0) -> list[int]:
    """`count` token ids that jump about the vocabulary, the same every time."""
    return [(7919 * i + 104729 + 31 * seed) % model.shape.vocab for i in range(count)]


def reader(model: Model, prompt: int) -> Callable[[], object]:
    """A call that reads a prompt of so many tokens in one pass."""
    cache, tokens = model.cache(1, prompt), ids(model, prompt)

    def read() -> None:
        cache.clear()
        prefill(model, cache, tokens)

    return read


def writer(model: Model, context: int, batch: int = 1) -> Callable[[], object]:
    """A call that makes one decode pass after so many tokens, for `batch` sequences at once.

    The cache is filled with random keys and values: real numbers, which nobody had to compute.
    """
    cache, last = filled(model, context, batch), ids(model, batch)

    def write() -> None:
        cache.lengths = [context] * batch
        decode(model, cache, last)

    return write


def rereader(model: Model, context: int) -> Callable[[], object]:
    """A call that writes one token without a cache: all tokens so far pass through again."""
    tokens = ids(model, context + 1)
    return lambda: prefill(model, model.no_cache(1, context + 1), tokens)


def filled(model: Model, context: int, batch: int = 1) -> KVCache:
    """A cache that holds `context` random keys and values of each sequence, and room for one."""
    cache = model.cache(batch, context + 1)
    for held in (cache.k, cache.v):
        held.normal_(generator=torch.Generator(held.device).manual_seed(0))
    cache.lengths = [context] * batch
    return cache
