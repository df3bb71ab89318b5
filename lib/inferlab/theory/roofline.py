"""How long a step should take: the plain roofline, and the shares of a ceiling that were reached.

time = max(FLOP / peak, bytes / bandwidth): the slower of computing and moving, the other hidden
behind it. Nothing here is measured; the ceiling is always an argument. Source: Williams, Waterman
and Patterson, Roofline, Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from typing import Protocol

from inferlab.theory import additive, counts, formulas
from inferlab.theory.additive import Constants, Prediction
from inferlab.theory.counts import Sequence, StepCount
from inferlab.theory.shapes import ModelShape
from inferlab.theory.units import bytes_per_weight, canonical_dtype


class Machine(Protocol):
    """What a prediction needs of a machine: nameplate (hardware.get) or measured alike.

    peak_flops(dtype) in FLOP/s, bandwidth in byte/s.
    """

    @property
    def bandwidth(self) -> float: ...

    def peak_flops(self, dtype: str) -> float: ...


def compute_dtype(weight_dtype: str) -> str:
    """The data type products are computed in when nothing else is said.

    fp32, bf16 and fp16 weights compute as they are stored; narrower ones are taken as weight-only
    quantization and compute in bf16. A kernel that computes in fp8 or int8 is asked for by name.
    """
    name = canonical_dtype(weight_dtype)
    return name if name in ("fp32", "bf16", "fp16") else "bf16"


def step_time(
    count: StepCount,
    machine: Machine,
    dtype: str = "bf16",
    n_gpus: int = 1,
    activations: bool = False,
) -> float:
    """Seconds of a step: max(FLOP / (n peak), bytes / (n bandwidth)).

    dtype        data type the products are computed in: which peak.
    n_gpus       machines that share the work evenly and talk for free; a lower bound.
    activations  False counts weights and KV cache (`bytes_streamed`), True every operand too.
    """
    if n_gpus < 1:
        raise ValueError(f"n_gpus={n_gpus}: at least one machine does the work")
    moved = count.bytes if activations else count.bytes_streamed
    peak, bandwidth = machine.peak_flops(dtype), machine.bandwidth
    return formulas.roofline_time(count.flops, peak, moved, bandwidth) / n_gpus


def decode_time(
    shape: ModelShape,
    machine: Machine,
    batch: int = 1,
    context: int = 0,
    weight_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    dtype: str | None = None,
    n_gpus: int = 1,
) -> float:
    """Seconds of one decode step: `batch` sequences, `context` tokens in the cache of each.

    The plain roofline on exact counts. dtype None computes as `compute_dtype(weight_dtype)` says.
    """
    if batch < 1:
        raise ValueError(f"batch={batch}: a step decodes at least one sequence")
    work = [Sequence(1, context)] * batch
    count = counts.step(shape, work, weight_dtype=weight_dtype, kv_dtype=kv_dtype)
    return step_time(count, machine, dtype or compute_dtype(weight_dtype), n_gpus)


def prefill_time(
    shape: ModelShape,
    machine: Machine,
    batch: int = 1,
    prompt: int = 512,
    weight_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    dtype: str | None = None,
    n_gpus: int = 1,
    causal_half: bool = True,
) -> float:
    """Seconds of one prefill pass over `batch` prompts of `prompt` tokens, logits of the last one.

    The plain roofline on exact counts; causal_half as in `counts.step`.
    """
    if batch < 1:
        raise ValueError(f"batch={batch}: a pass reads at least one prompt")
    work = [Sequence(prompt)] * batch
    count = counts.step(
        shape, work, weight_dtype=weight_dtype, kv_dtype=kv_dtype, causal_half=causal_half
    )
    return step_time(count, machine, dtype or compute_dtype(weight_dtype), n_gpus)


def ridge(machine: Machine, dtype: str = "bf16") -> float:
    """Ridge point peak / bandwidth, FLOP per byte: the intensity at which both limits meet."""
    return formulas.ridge_point(machine.peak_flops(dtype), machine.bandwidth)


def critical_batch(machine: Machine, weight_dtype: str = "bf16", dtype: str | None = None) -> float:
    """Tokens per step at which a matrix product takes as long to compute as its weights to read.

    B = ridge * b_w / 2: 2 FLOP per weight and token against b_w bytes per weight. Activations and
    KV cache are left out. Source: How to Scale Your Model, part 1.
    """
    peak = machine.peak_flops(dtype or compute_dtype(weight_dtype))
    return formulas.critical_batch(peak, bytes_per_weight(weight_dtype), machine.bandwidth)


def mfu(
    flops: float, seconds: float, machine: Machine, dtype: str = "bf16", n_gpus: int = 1
) -> float:
    """Model FLOP utilization: share of the machine's peak in this data type, 0 ... 1.

    flops / (seconds * n_gpus * machine.peak_flops(dtype)). The machine names the ceiling:
    nameplate or measured. Source: PaLM, arXiv 2204.02311, appendix B.
    """
    return formulas.mfu(flops, _positive(seconds), n_gpus * machine.peak_flops(dtype))


def mbu(bytes_moved: float, seconds: float, machine: Machine, n_gpus: int = 1) -> float:
    """Memory bandwidth utilization: share of the machine's bandwidth, 0 ... 1.

    bytes_moved / (seconds * n_gpus * machine.bandwidth), with the bytes of weights and KV cache a
    step must read. Source: Databricks, LLM Inference Performance Engineering, 2023.
    """
    return formulas.mbu(bytes_moved, _positive(seconds), n_gpus * machine.bandwidth)


def _positive(seconds: float) -> float:
    if not seconds > 0:
        raise ValueError(f"seconds={seconds}: a utilization needs a time above zero")
    return seconds


def predict(
    shape: ModelShape,
    machine: Machine,
    phase: str = "decode",
    batch: int = 1,
    context: int = 1024,
    prompt: int | None = None,
    weight_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    dtype: str | None = None,
    head_dtype: str | None = None,
    n_gpus: int = 1,
    constants: Constants | None = None,
) -> Prediction:
    """Seconds of a step by the additive model (`theory.additive`), with its terms.

    t = L t_0 + t_step + bytes / (beta BW) + FLOP / (phi F) + communication. The result is a float
    with .terms (weights, kv, attention, activations, head, fixed, communication), .roofline (the
    plain maximum at the same ceilings), .path and .note.

    machine    `additive.Fitted` carries constants per phase and kernel path. Any other has none:
               then beta = phi = 1 and t_0 = 0, a machine that loses nothing but overlaps nothing,
               and .note says so.
    phase      'decode': one token of each of `batch` sequences after `context` cached ones.
               'prefill': `batch` prompts of `prompt` tokens (of `context` where prompt is None),
               logits at the last position; of attention the causal pairs, or with
               an `additive.Fitted` whole blocks of `causal_block` keys, as its kernel does.
    dtype      products are computed in this; None as `compute_dtype(weight_dtype)` says. The head
               computes as head_dtype is stored, attention in bf16 where dtype is narrower (fp8).
    constants  used instead of the machine's.
    """
    if phase not in additive.PHASES:
        raise ValueError(f"phase={phase!r}: a step is 'decode' or 'prefill'")
    length = context if prompt is None else prompt
    rows = batch * (length if phase == "prefill" else 1)
    dtype = dtype or compute_dtype(weight_dtype)
    block = machine.causal_block if isinstance(machine, additive.Fitted) else 1
    amounts, plain = step_costs(
        shape, machine, phase, batch, context, prompt, weight_dtype, kv_dtype, dtype, head_dtype,
        n_gpus, block,
    )  # fmt: skip
    path, note = additive.path_of(rows), "constants as passed"
    if constants is None and isinstance(machine, additive.Fitted):
        constants, note = machine.of(phase, path), f"constants of {machine.name or 'a fit'}"
    elif constants is None:
        constants, note = additive.Constants(), _IDEAL
    return additive.price(amounts, constants, plain, path, note)


def step_costs(
    shape: ModelShape,
    machine: Machine,
    phase: str = "decode",
    batch: int = 1,
    context: int = 1024,
    prompt: int | None = None,
    weight_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    dtype: str | None = None,
    head_dtype: str | None = None,
    n_gpus: int = 1,
    causal_block: int = 1,
) -> tuple[additive.Costs, float]:
    """(amounts, seconds of the plain roofline) of the step that `predict` prices: a row of a fit.

    Arguments as for `predict`, causal_block as for `counts.step`; `additive.costs` says what the
    amounts are. The roofline counts the needed pairs alone.
    """
    if batch < 1:
        raise ValueError(f"batch={batch}: a step works on at least one sequence")
    length = context if prompt is None else prompt
    one = Sequence(1, context) if phase == "decode" else Sequence(length)
    kinds = {"weight_dtype": weight_dtype, "kv_dtype": kv_dtype, "head_dtype": head_dtype}
    count = needed = counts.step(shape, [one] * batch, **kinds)
    if causal_block > 1:
        count = counts.step(shape, [one] * batch, causal_block=causal_block, **kinds)
    dtype = dtype or compute_dtype(weight_dtype)
    of_head = compute_dtype(head_dtype) if head_dtype else dtype
    amounts = additive.costs(count, shape, machine, dtype, n_gpus, of_head, compute_dtype(dtype))
    return amounts, step_time(needed, machine, dtype, n_gpus)


_IDEAL = (
    "no constants were given: ideal ones, beta = phi = 1 and no fixed time; pass additive.Fitted "
    "with constants calibrated on this machine or fitted to measurements of it"
)
