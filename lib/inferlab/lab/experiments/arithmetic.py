"""Counts behind claims, with falsehoods planted in the counter: `plant` as in `phases`.

The counts themselves are those of `flops`: the engine's own operations, as they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inferlab.lab.counters import FlopCount
from inferlab.lab.experiments import flops, standins
from inferlab.lab.verdicts import Case
from inferlab.theory import counts, hardware, roofline, shapes

HEAVY = "llama-2-7b"


@contextmanager
def _counting(plant: str) -> Iterator[None]:
    """The counter with a fault: "macs" takes a multiply and an add for one; "no-attention" leaves
    out what queries and the cache are multiplied for.
    """
    honest = flops.one_pass

    def faulty(*args, **kwargs) -> FlopCount:
        found = honest(*args, **kwargs)
        kept = flops.parts(found).linear if plant == "no-attention" else found.total // 2
        return FlopCount(kept, found.by_op, found.uncounted)

    flops.one_pass = faulty if plant else honest
    try:
        yield
    finally:
        flops.one_pass = honest


def _trial(cases: Callable[..., list[Case]]) -> Callable[[str], list[Case]]:
    def run(plant: str = "") -> list[Case]:
        with _counting(plant):
            return cases(standins.small("auto"))

    return run


per_token, reading = _trial(flops.per_token), _trial(flops.reading)
writing, whole = _trial(flops.writing), _trial(flops.whole)


def worked_example(plant: str = "") -> dict[str, float]:
    """The source's own numbers by its own rule. plant  "macs" counts one FLOP for a weight"""
    found = flops.worked_example()
    return {k: n / 2 for k, n in found.items()} if plant == "macs" else found


def dense_products(plant: str = "") -> list[Case]:
    """Share of the FLOPs of prefill in products of a weight with all P rows; and such products.

    Llama-2-7B. The head has one row, so it is not among those with all rows.
    plant  "no-attention" counts the products of weights alone
    """
    model = flops.skeleton(HEAVY)
    head, found = 2 * model.shape.d_model * model.shape.vocab, []
    for regime, prompt in (("short-prompt", 512), ("long-prompt", 16384)):
        kinds = flops.parts(flops.one_pass(model, prompt))
        total = kinds.linear if plant == "no-attention" else kinds.total
        share = (kinds.linear - head) / total
        found.append(Case(regime, share, detail=f"{HEAVY}, P = {prompt}"))
    dims = shapes.weight_shapes(model.shape)
    matrices = sum(len(size) == 2 for name, size in dims.items() if "embd" not in name)
    return [*found, Case("products", matrices, ours=7 * model.shape.n_layers + 1)]


def cache_share(plant: str = "") -> dict[str, float]:
    """Bytes of keys and values ÷ those and the weights: Llama-3-8B, bf16, 8 users of 8,192 tokens.

    Both are the sizes of the engine's own tensors. plant  "one-user" makes room for one user
    """
    model = flops.skeleton("llama-3-8b")
    cache = model.cache(1 if plant == "one-user" else 8, 8192).nbytes
    return {"llama-3-8b": cache / (cache + model.nbytes)}


def intensity(plant: str = "") -> dict[str, float]:
    """FLOPs per byte of a decode step ÷ those per byte at which a GPU is busy (its ridge point).

    Llama-3-8B in 16 bits, 1,024 tokens of context. plant  "swapped" reads 512 tokens instead
    """
    shape = shapes.get("llama-3-8b")
    batch = counts.Sequence(512) if plant == "swapped" else counts.Sequence(1, 1024)
    step, found = counts.step(shape, [batch]), {}
    for regime, name, dtype in (
        ("h100", "h100-sxm", "bf16"), ("a100", "a100-80gb-sxm", "bf16"), ("t4", "t4", "fp16"),
    ):  # fmt: skip
        busy = roofline.ridge(hardware.get(name), dtype)
        found[regime] = step.flops / step.bytes_streamed / busy
    return found
