"""One request, whole: what it takes by count, what that should last, what it lasted.

A request is a prompt of P tokens and an answer of G tokens: one prefill pass over P tokens, which
yields the first token of the answer, and G − 1 decode passes for the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from inferlab.engine.generate import generate
from inferlab.engine.model import Model
from inferlab.lab import clock as clocks
from inferlab.lab.hollow import hollow, hollow_pass
from inferlab.lab.intervals import Interval, ratio
from inferlab.lab.meters import synchronizer, timeline
from inferlab.lab.probes import gemm_probe, read_probe
from inferlab.lab.records import Measurement, provenance
from inferlab.theory import counts, roofline
from inferlab.theory.latency import Timeline
from inferlab.theory.shapes import ModelShape


@dataclass(frozen=True)
class Work:
    """The work of one request by count: P = `prompt` and G = `answer` tokens, one step per pass."""

    prompt: int
    answer: int
    dtype: str
    prefill: counts.StepCount
    decode: tuple[counts.StepCount, ...]

    @property
    def passes(self) -> int:
        """Forward passes: one for the prompt, G − 1 for the answer."""
        return 1 + len(self.decode)

    def floor(self, machine: roofline.Machine, fixed: float = 0.0) -> Timeline:
        """When each token would come at the machine's ceilings, each pass `fixed` seconds longer.

        Every pass lasts the larger of bytes / bandwidth and FLOPs / peak (the plain roofline):
        with fixed = 0 no engine can be faster.
        """
        now, times = 0.0, []
        for step in (self.prefill, *self.decode):
            now += fixed + roofline.step_time(step, machine, self.dtype)
            times.append(now)
        return Timeline(sent=0.0, tokens=tuple(times))


def work(shape: ModelShape, prompt: int, answer: int, dtype: str = "bf16") -> Work:
    """Count a request of `prompt` tokens read and `answer` tokens written, batch 1.

    Raises ValueError unless both are at least 1.
    """
    if prompt < 1 or answer < 1:
        raise ValueError(f"{prompt} tokens read, {answer} written: both must be at least 1")
    as_stored = {"weight_dtype": dtype, "kv_dtype": dtype}
    reading = counts.step(shape, [counts.Sequence(new=prompt)], **as_stored)
    writing = tuple(
        counts.step(shape, [counts.Sequence(new=1, past=prompt + i)], **as_stored)
        for i in range(answer - 1)
    )
    return Work(prompt, answer, dtype, reading, writing)


@dataclass(frozen=True)
class Ceilings:
    """What the machine did beside the request, round by round: a `roofline.Machine` of medians."""

    read: Measurement  # B/s
    product: Measurement  # FLOP/s, in the dtype of the model

    @property
    def bandwidth(self) -> float:
        return self.read.value

    def peak_flops(self, dtype: str) -> float:
        """FLOP/s of `dtype`, the one that was measured. Raises ValueError for another."""
        if dtype != self.product.conditions["dtype"]:
            raise ValueError(f"products were measured in {self.product.conditions['dtype']} only")
        return self.product.value


@dataclass(frozen=True)
class Run:
    """A request run several times on one machine, with the ceilings taken between the rounds.

    tokens  the answer, the same in every round (greedy); passes: forward passes, counted
    ttft    seconds to the first token; tpot: seconds per token after it; e2e: of the whole request
    gaps    seconds between tokens, all rounds together; rounds: each round's timeline
    fixed   seconds of a pass through as many layers and operations with next to no weights
    disturbed  of the rounds, those in which threads stood in line for a core: something else ran
    """

    tokens: tuple[int, ...]
    passes: int
    ttft: Measurement
    tpot: Measurement
    e2e: Measurement
    gaps: Measurement
    fixed: Measurement
    ceilings: Ceilings
    rounds: tuple[Timeline, ...]
    disturbed: int = 0

    @property
    def typical(self) -> Timeline:
        """The round whose whole time is the median one."""
        return sorted(self.rounds, key=lambda t: t.e2e)[len(self.rounds) // 2]

    def read_efficiency(self, work: Work) -> Interval:
        """MBU of decode: bandwidth that the passes reached ÷ the read ceiling, round by round."""
        moved = sum(step.bytes_streamed for step in work.decode) / len(work.decode)
        reached = [moved / t for t in self.tpot.samples]
        return ratio(reached, self.ceilings.read.samples)


@dataclass(frozen=True)
class _Round:
    """One round. in_line: how many threads stood in line for a core meanwhile, on average."""

    line: Timeline
    rates: list[float]
    fixed: float
    in_line: float

    @property
    def calm(self) -> bool:
        return self.in_line <= clocks.CALM


def run(
    model: Model,
    prompt: Sequence[int],
    max_tokens: int,
    rounds: int = 9,
    stop: Collection[int] = (),
    progress: Callable[[int], None] = lambda done: None,
    waits: clocks.Waited = clocks.waited,
    patience: float = 30.0,
) -> Run:
    """Run the request `rounds` times: ceilings, request, hollow passes, ceilings, request, …

    One request before the first is not counted. A round in which threads stood in line for a core
    (`clock.CALM`) is run again; after twice as many as wanted, or those wanted and `patience`
    seconds, the calmest are kept, and `disturbed` says how many were not calm.

    Raises ValueError for an answer of fewer than two tokens, since TPOT is not defined for it, and
    RuntimeError if a round wrote other tokens.
    """
    where, dtype = str(model.device), model.dtype_name
    probes = read_probe(where), gemm_probe(dtype, 1024, 1024, 1024, where, _kernel(model))
    empty = hollow(model)
    cache = model.cache(1, len(prompt) + max_tokens)
    tried, passes = [], set()
    tokens = _once(model, cache, prompt, max_tokens, stop)[0]
    if len(tokens) < 2:
        raise ValueError("the answer has one token: ask for at least two, or put another prompt")
    start = time.perf_counter()
    while sum(r.calm for r in tried) < rounds and (
        len(tried) < rounds or (len(tried) < 2 * rounds and time.perf_counter() - start < patience)
    ):
        stood, begun = waits(), time.perf_counter()
        rates = [_rate(probe, where) for probe in probes]
        written, line = _once(model, cache, prompt, max_tokens, stop)
        passes.add(cache.passes)
        if written != tokens:
            raise RuntimeError(f"round {len(tried) + 1} wrote other tokens than the one before it")
        fixed = hollow_pass(empty, len(prompt), where)
        in_line = clocks.in_line(stood, waits(), time.perf_counter() - begun)
        tried.append(_Round(line, rates, fixed, in_line))
        progress(min(rounds, len(tried)))
    calmest = sorted(range(len(tried)), key=lambda i: tried[i].in_line)[:rounds]
    kept = [tried[i] for i in sorted(calmest)]
    times, rates = [r.line for r in kept], [[r.rates[i] for r in kept] for i in (0, 1)]
    here = provenance(where)
    how = {"model": model.shape.name, "dtype": dtype, "prompt": len(prompt), "answer": len(tokens),
           "device": where, "kernels": model.table, "warmup": 1}  # fmt: skip

    def record(name: str, samples, unit: str = "s", **more) -> Measurement:
        return Measurement.from_samples(name, list(samples), unit, {**how, **more}, here)

    return Run(
        tokens=tokens, passes=passes.pop() if len(passes) == 1 else -1, rounds=tuple(times),
        disturbed=sum(not r.calm for r in kept),
        ttft=record("time to first token", (t.ttft for t in times)),
        tpot=record("time per output token", (t.tpot for t in times)),
        e2e=record("whole request", (t.e2e for t in times)),
        gaps=record("time between tokens", (gap for t in times for gap in t.itl)),
        fixed=record("pass without weights", (r.fixed for r in kept), layers=model.shape.n_layers),
        ceilings=Ceilings(
            record("read bandwidth", rates[0], "B/s", **probes[0].conditions),
            record("matrix product rate", rates[1], "FLOP/s", **probes[1].conditions),
        ),
    )  # fmt: skip


def count_passes(
    model: Model, prompt: Sequence[int], max_tokens: int, stop: Collection[int] = ()
) -> tuple[int, int, int]:
    """Forward passes made until the first token and after it, and tokens written, by counting."""
    cache = model.cache(1, len(prompt) + max_tokens)
    first = written = 0
    for step in generate(model, prompt, max_tokens, stop=stop, cache=cache):
        first = first or cache.passes
        written += step.tokens[0] is not None
    return first, cache.passes - first, written


def _once(model, cache, prompt, max_tokens, stop) -> tuple[tuple[int, ...], Timeline]:
    cache.clear()
    cache.passes = 0
    steps = generate(model, prompt, max_tokens, stop=stop, cache=cache)
    done, line = timeline(steps, str(model.device))
    return tuple(step.tokens[0] for step in done), line


def _rate(probe, device: str, calls: int = 3) -> float:
    """Work per second of a probe, the best of some calls: what the machine gives at this moment."""
    sync = synchronizer(device)

    def once():
        for _ in range(calls):
            probe()
            sync()
            yield None

    line = timeline(once(), device)[1]
    return probe.work / min((line.ttft, *line.itl))


def _kernel(model: Model) -> str:
    return model.table["linear"]["gemm"]
