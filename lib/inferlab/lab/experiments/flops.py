"""FLOPs counted while the engine runs, to hold 2N per token and the exact formula against.

Small models are executed. Of a large one the engine's own code is run on torch's `meta` device:
every operation is dispatched with its shapes, nothing is computed and no memory is needed, and the
counter sees the same operations. Neither knows the formulas of `theory.counts`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from inferlab.engine.generate import decode, prefill
from inferlab.engine.kernels import REGIMES
from inferlab.engine.model import Model
from inferlab.lab.counters import FlopCount, flops
from inferlab.lab.experiments.reading import ids
from inferlab.lab.verdicts import Case
from inferlab.theory import counts, shapes
from inferlab.theory.shapes import ModelShape

_PLAIN = {"norm": dict.fromkeys(REGIMES, "plain")}
_ROOM = 2**17  # tokens a skeleton's cache may hold: it costs nothing


def skeleton(shape: ModelShape | str) -> Model:
    """The engine's model of a shape, or of a published one by name, on torch's meta device.

    It runs every operation of a pass by shape alone. Raises ValueError for a shape that the engine
    does not run (experts, MLA, …).
    """
    shape = shapes.get(shape) if isinstance(shape, str) else shape
    roomy = replace(shape, max_context=max(shape.max_context, _ROOM))
    weights = {
        name: torch.empty(dims, dtype=torch.bfloat16, device="meta")
        for name, dims in shapes.weight_shapes(roomy).items()
    }
    return Model.create(roomy, weights, None, "shapes alone", _PLAIN)


def one_pass(model: Model, new: int = 1, past: int = 0) -> FlopCount:
    """What the counter sees in one pass: `new` tokens after `past` in the cache.

    One new token is decoded, more are prefilled. The keys and values in the cache are zeros: no
    count depends on them.
    """
    cache, tokens = model.cache(1, past + new), ids(new, model.shape.vocab)
    cache.lengths = [past]
    if new == 1 and past:
        return flops(lambda: decode(model, cache, tokens))
    return flops(lambda: prefill(model, cache, tokens))


@dataclass(frozen=True)
class Parts:
    """FLOPs of one pass in products with weights (`linear`), and of queries with the cache."""

    linear: int
    attention: int

    @property
    def total(self) -> int:
        return self.linear + self.attention


def parts(found: FlopCount) -> Parts:
    """A count by the kind of product: batched products and fused attention, and all the others."""
    attention = sum(
        n for op, n in found.by_op.items() if "scaled_dot_product" in op or op.endswith(".bmm")
    )
    return Parts(found.total - attention, attention)


def theory_parts(step: counts.StepCount) -> Parts:
    """The same two parts of a count by formula."""
    attention = sum(op.flops for op in step.ops if op.name.startswith(("scores", "values")))
    return Parts(step.matmul_flops - attention, attention)


def exact(shape: ModelShape, new: int = 1, past: int = 0) -> counts.StepCount:
    """`counts.step` of that pass, in the counter's convention: the full square of attention."""
    return counts.step(shape, [counts.Sequence(new, past)], causal_half=False)


def answer_flops(model: Model, prompt: int, answer: int) -> int:
    """FLOPs of the G − 1 decode passes of an answer of G tokens after P, from three counted ones.

    The first, a middle and the last pass are counted. A pass costs a constant and a constant per
    token of context; that the middle one lies on the line through the others is checked, and then
    the sum of all is n · first + (last − first) · n/2. Raises ArithmeticError if it does not.
    """
    n = answer - 1
    if n < 1:
        return 0
    first, last = prompt, prompt + n - 1
    begin = one_pass(model, 1, first).total
    if n == 1:
        return begin
    end, middle = one_pass(model, 1, last).total, first + (last - first) // 2
    slope, rest = divmod(end - begin, last - first)
    if rest or one_pass(model, 1, middle).total != begin + slope * (middle - first):
        raise ArithmeticError(
            f"{model.shape.name}: a pass after {middle} tokens is not on the line between those "
            f"after {first} and {last}; count every pass"
        )
    return n * begin + slope * (n * (n - 1) // 2)


def exact_answer(shape: ModelShape, prompt: int, answer: int) -> int:
    """The same sum by formula, pass by pass."""
    return sum(exact(shape, 1, prompt + i).matmul_flops for i in range(answer - 1))


def multiplied(shape: ModelShape) -> int:
    """Parameters that one token is multiplied with: those in matrices that its products take.

    Embeddings, norms and biases are not among them, nor the experts it is not sent to.
    """
    return theory_parts(exact(shape)).linear // 2


def context_where_attention_adds(shape: ModelShape, share: float) -> float:
    """Tokens in the cache at which attention costs `share` of what the weights cost.

    The products of attention are a · (c + 1), those with weights a constant w: c = share · w/a − 1.
    Raises ValueError unless attention grows with every token (a sliding window stops it).
    """
    if shape.sliding_window:
        raise ValueError(f"{shape.name} sees at most {shape.sliding_window} tokens")
    one, two = theory_parts(exact(shape, 1, 0)), theory_parts(exact(shape, 1, 1))
    return share * one.linear / (two.attention - one.attention) - 1


# --------------------------------------------------------------------------------------- claims
# Each gives the cases of one claim: counted by the counter, beside what our formula says.


def per_token(model: Model, contexts: Sequence[int] = (0, 64, 1024, 2048)) -> list[Case]:
    """Cases of `two-flops-per-parameter`: a decode step of SmolLM2, and of Llama-3-8B's shape."""
    other = skeleton("llama-3-8b")
    return [
        *(_step_case("short-context" if c <= 64 else "long-context", model, 1, c)
          for c in contexts),
        *(_step_case("separate-head", other, 1, c) for c in (0, 64)),
    ]  # fmt: skip


def reading(model: Model) -> list[Case]:
    """Cases of `prefill-flops`: Llama-2-7B's shape at two lengths, and SmolLM2 executed."""
    large = skeleton("llama-2-7b")
    return [
        _step_case("large-model", large, 512),
        _step_case("small-model", model, 256),
        _step_case("long-prompt", large, 16384),
    ]


def writing(model: Model) -> list[Case]:
    """Cases of `decode-flops`: answers of SmolLM2 after short and long prompts."""
    cases = []
    for regime, prompt, answer in (
        ("short-context", 16, 128), ("short-answer", 16, 8), ("long-context", 1024, 128),
    ):  # fmt: skip
        told = 2 * model.shape.params * answer
        counted = answer_flops(model, prompt, answer) / told
        ours = exact_answer(model.shape, prompt, answer) / told
        cases.append(Case(regime, counted, ours=ours, detail=f"P = {prompt}, G = {answer}"))
    return cases


def whole(model: Model) -> list[Case]:
    """Cases of `total-flops`: a request of Llama-2-7B's shape, and one of SmolLM2."""
    cases = []
    for regime, held, prompt, answer in (
        ("large-model", skeleton("llama-2-7b"), 500, 500), ("small-model", model, 1024, 16),
    ):  # fmt: skip
        told = 2 * held.shape.params * (prompt + answer)
        read = one_pass(held, prompt).total
        formula = exact(held.shape, prompt).matmul_flops
        counted = (read + answer_flops(held, prompt, answer)) / told
        ours = (formula + exact_answer(held.shape, prompt, answer)) / told
        cases.append(Case(regime, counted, ours=ours, detail=f"P = {prompt}, G = {answer}"))
    return cases


@functools.cache
def write_over_read(tokens: int = 500) -> tuple[Case, ...]:
    """Cases of `equal-flops-unequal-time` that are counted: as many tokens written as read."""
    cases = []
    for regime, name in (("flops", "llama-2-7b"), ("flops-small", "qwen2.5-0.5b")):
        model = skeleton(name)
        counted = answer_flops(model, tokens, tokens) / one_pass(model, tokens).total
        formula = exact(model.shape, tokens).matmul_flops
        ours = exact_answer(model.shape, tokens, tokens) / formula
        cases.append(Case(regime, counted, ours=ours, detail=f"P = G = {tokens}"))
    return tuple(cases)


def worked_example(n_params: float = 70e9, prompt: int = 500, answer: int = 500) -> dict:
    """Cases of `worked-example`: the source's program, by the rule it states."""
    read = counts.rule_of_thumb_flops(n_params, prompt)
    written = counts.rule_of_thumb_flops(n_params, answer)
    return {"prefill": read, "decode": written, "total": read + written}


def _step_case(regime: str, model: Model, new: int, past: int = 0) -> Case:
    told = 2 * model.shape.params * new
    ours = exact(model.shape, new, past).matmul_flops / told
    detail = f"P = {new}" if new > 1 else f"{past} tokens of context"
    return Case(regime, one_pass(model, new, past).total / told, ours=ours, detail=detail)
