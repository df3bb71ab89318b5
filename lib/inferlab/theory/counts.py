"""How much work a step is: FLOPs, bytes of weights, of activations and of KV cache, per operation.

Conventions, the same for every model:
- A multiply and an add are 2 FLOP. A comparison, an exponential, a division, a square root are 1.
- A weight matrix is read once per step, whatever the batch. An input embedding is a look-up: only
  the rows of the step's tokens are read. A tied head is read once, as the head.
- Attention reads each cached key and value once per sequence and KV head, and keeps its score
  matrix on chip (no S x S traffic). Every other operation reads its operands and writes its result
  once (`read_bytes`, `written_bytes`): traffic of a run without fusion, which caches may absorb.
- `bytes_streamed` is what no cache can absorb once weights outgrow it: weights and KV.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from inferlab.theory import _layers, formulas
from inferlab.theory.shapes import ModelShape
from inferlab.theory.units import bytes_per_weight, canonical_dtype


@dataclass(frozen=True)
class Sequence:
    """One sequence's part in a step: `new` tokens are processed after `past` cached ones.

    Prefill of P tokens is Sequence(P, 0), a chunk of it Sequence(chunk, done), decoding with c
    tokens in the cache Sequence(1, c). Raises ValueError for new < 1 or past < 0.
    """

    new: int
    past: int = 0

    def __post_init__(self):
        if self.new < 1 or self.past < 0:
            raise ValueError(
                f"a sequence with new={self.new}, past={self.past}: a step processes at least one "
                "new token per sequence, after zero or more cached ones"
            )


@dataclass(frozen=True)
class OpCount:
    """Work of one operation, summed over its `times` repetitions (layers) in one step.

    flops          FLOP
    weight_bytes   bytes of parameters read; for experts the expected value
    read_bytes     bytes of activations and of embedding rows read
    written_bytes  bytes of activations written
    kv_read        bytes read from the KV cache
    kv_written     bytes written to the KV cache
    m, n, k        a matrix product of (m, k) by (k, n): flops = 2 m n k times; 0 for other
                   operations. Attention: scores m = query heads, n = pairs of query and key (all
                   sequences), k = head_dim; values m = query heads, n = head_dim, k = pairs.
    """

    name: str
    flops: int = 0
    weight_bytes: float = 0.0
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    kv_read: float = 0.0
    kv_written: float = 0.0
    m: int = 0
    n: int = 0
    k: int = 0
    times: int = 1

    @property
    def bytes_read(self) -> float:
        """Bytes read: weights, activations and KV cache."""
        return self.weight_bytes + self.read_bytes + self.kv_read

    @property
    def bytes_written(self) -> float:
        """Bytes written: activations and KV cache."""
        return self.written_bytes + self.kv_written

    @property
    def bytes(self) -> float:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def bytes_streamed(self) -> float:
        """Bytes of weights and KV cache read and written, activations left out."""
        return self.weight_bytes + self.kv_read + self.kv_written

    @property
    def intensity(self) -> float:
        """Arithmetic intensity in FLOP per byte read and written; 0 where nothing moves."""
        return self.flops / self.bytes if self.bytes else 0.0


def _total(field: str, meaning: str):
    return property(lambda self: sum(getattr(op, field) for op in self.ops), doc=meaning)


@dataclass(frozen=True)
class StepCount:
    """The operations of one step, in order, and their sums. A step processes `tokens` tokens."""

    ops: tuple[OpCount, ...]
    tokens: int
    sequences: int

    flops = _total("flops", "FLOP of the step, elementwise operations included.")
    weight_bytes = _total("weight_bytes", "Bytes of parameters read.")
    read_bytes = _total("read_bytes", "Bytes of activations and embedding rows read.")
    written_bytes = _total("written_bytes", "Bytes of activations written.")
    kv_read = _total("kv_read", "Bytes read from the KV cache.")
    kv_written = _total("kv_written", "Bytes written to the KV cache.")
    bytes_read = _total("bytes_read", "Bytes read: weights, activations, KV cache.")
    bytes_written = _total("bytes_written", "Bytes written: activations, KV cache.")
    bytes = _total("bytes", "Bytes read and written.")
    bytes_streamed = _total("bytes_streamed", "Bytes of weights and KV cache read and written.")

    @property
    def matmul_flops(self) -> int:
        """FLOP of the matrix products alone, attention included: what a FLOP counter counts."""
        return sum(2 * op.m * op.n * op.k * op.times for op in self.ops)

    @property
    def intensity(self) -> float:
        """Arithmetic intensity of the whole step in FLOP per byte."""
        return formulas.arithmetic_intensity(self.flops, self.bytes)

    def op(self, name: str) -> OpCount:
        """The operation of this name. Raises ValueError, listing the names, if there is none."""
        for op in self.ops:
            if op.name == name:
                return op
        raise ValueError(f"no operation {name!r}: there are {', '.join(o.name for o in self.ops)}")


def step(
    shape: ModelShape,
    sequences: Iterable[Sequence],
    *,
    weight_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    act_dtype: str | None = None,
    head_dtype: str | None = None,
    causal_half: bool = True,
    causal_block: int = 1,
    head: str = "last",
) -> StepCount:
    """Work of one step over any mix of sequences in prefill and in decode.

    weight_dtype  of the matrices.
    act_dtype     of activations, norms and biases; None is weight_dtype where that is fp32, bf16
                  or fp16, else bf16.
    head_dtype    of the output matrix and the embedding rows, weight_dtype if None.
    causal_half   True counts the pairs of query and key that attention needs: query i of a
                  sequence with c cached tokens sees c + i of them, n c + n (n + 1) / 2 in all.
                  False counts n (c + n), as a kernel that computes the masked half does. Decode is
                  the same either way.
    causal_block  keys that a kernel computes at a time: within a block it computes the masked pairs
                  too, and only whole blocks above the diagonal are left out. 1: the needed pairs.
    head          'last': logits at the last position of each sequence; 'all': at every position.

    A sliding window limits the keys a query sees and the cache that is read. A MoE step is expected
    to read E (1 - (1 - k/E)^T) of E experts for T tokens routed to k each, uniformly and
    independently; k experts per token compute. MLA takes, per sequence, the cheaper of two equal
    forms: keys and values expanded from the latent, or the expansion absorbed into the query.
    Everything but weight_bytes is additive over sequences.
    """
    batch = tuple(sequences)
    if not batch:
        raise ValueError("a step needs at least one sequence")
    if causal_block < 1:
        raise ValueError(f"causal_block={causal_block}: a kernel computes 1 key at a time or more")
    if head not in ("last", "all"):
        raise ValueError(f"head={head!r}: logits are taken at 'last' or at 'all' positions")
    tokens = sum(s.new for s in batch)
    widths = _layers.Widths(
        weight=bytes_per_weight(weight_dtype),
        head=bytes_per_weight(head_dtype or weight_dtype),
        act=bytes_per_weight(act_dtype or _activations_of(weight_dtype)),
        kv=bytes_per_weight(kv_dtype),
    )
    rows = _layers.operations(
        shape,
        widths,
        tokens=tokens,
        logits=len(batch) if head == "last" else tokens,
        spans=[_layers.span(shape, s.new, s.past, causal_half, causal_block) for s in batch],
    )
    return StepCount(tuple(OpCount(**row) for row in rows), tokens, len(batch))


def flops_per_token(shape: ModelShape, context: int = 0) -> int:
    """Exact FLOP of decoding one token with `context` tokens in the cache, attention included.

    The new token attends to context + 1 positions. About 2 N of the streamed parameters N, plus
    4 L H D_h (context + 1) for attention, plus norms, rotary embedding and activations.
    """
    return step(shape, [Sequence(1, context)]).flops


def bytes_per_step(
    shape: ModelShape,
    batch: int = 1,
    context: int = 0,
    weight_dtype: str = "bf16",
    kv_dtype: str = "bf16",
) -> float:
    """Bytes a decode step of `batch` sequences must move: weights + KV read + KV written.

    Each sequence has `context` tokens in the cache and adds one: with S = context + 1,
    bytes = N_streamed b_w + batch (S + 1) kappa, kappa the KV bytes per token (dense model, no
    window). Activations and the batch's embedding rows are left out: they stay in cache.
    """
    count = step(shape, _decode(batch, context), weight_dtype=weight_dtype, kv_dtype=kv_dtype)
    return count.bytes_streamed


def rule_of_thumb_flops(n_params: float, tokens: float) -> float:
    """2 N tokens: FLOP of passing `tokens` tokens through a model of N parameters.

    A multiply and an add per parameter and token; attention is left out.
    rule_of_thumb_flops(70e9, 500) is 7.00e13. Source: arXiv 2001.08361, section 2.1.
    """
    return formulas.prefill_flops(n_params, tokens)


def experts_touched(n_experts: int, n_active: int, tokens: int) -> float:
    """Expected number of distinct experts that `tokens` tokens use in one layer.

    E (1 - (1 - k / E)^T), each token sent to k of E experts uniformly and independently of the
    others. Real routers are neither; this is the reference they are compared with.
    """
    if not 0 < n_active <= n_experts or tokens < 0:
        raise ValueError(f"{n_active} of {n_experts} experts for {tokens} tokens makes no sense")
    return formulas.experts_touched(n_experts, n_active, tokens)


def bytes_resident(
    shape: ModelShape, cached_tokens: int = 0, weight_dtype: str = "bf16", kv_dtype: str = "bf16"
) -> float:
    """Bytes that must fit in memory: every parameter, and the KV of `cached_tokens` tokens.

    N b_w + cached_tokens kappa, kappa the KV bytes per token; activations are left out. All
    parameters are taken at weight_dtype.
    """
    if cached_tokens < 0:
        raise ValueError(f"cached_tokens={cached_tokens}: a cache holds zero or more tokens")
    weights = shape.params * bytes_per_weight(weight_dtype)
    return weights + cached_tokens * shape.kv_bytes_per_token(kv_dtype)


def _activations_of(weight_dtype: str) -> str:
    name = canonical_dtype(weight_dtype)
    return name if name in ("fp32", "bf16", "fp16") else "bf16"


def _decode(batch: int, context: int) -> list[Sequence]:
    if batch < 1 or not math.isfinite(batch):
        raise ValueError(f"batch={batch}: a step decodes at least one sequence")
    return [Sequence(1, context)] * batch
