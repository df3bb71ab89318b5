"""Published measurements of other people's machines, each mapped to a call of the predictor.

A row of data/published_points.csv becomes a `Case`: a shape, a machine and a sum of predicted
steps that should take the published time. What cannot be mapped says why. Assumptions that a source
leaves to the reader are listed in each case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from inferlab.lab.fitting import Row
from inferlab.lab.points import STATIC, Point, Unmapped, Work, number, read, value, work
from inferlab.theory import hardware, roofline
from inferlab.theory.roofline import Machine
from inferlab.theory.units import bytes_per_weight

__all__ = ["Case", "Point", "Unmapped", "case", "cases", "read"]

_STACKS = {
    STATIC: "TensorRT-LLM", "NIM/GenAI-Perf": "TensorRT-LLM",
    "kipply / FasterTransformer": "FasterTransformer",
    "XiongjieDai (llama.cpp)": "llama.cpp",
}  # fmt: skip
_UNITS = {"ms": 1e-3, "s": 1.0, "ms/token": 1e-3}


@dataclass(frozen=True)
class Case:
    """A published time and the steps that make it up.

    seconds  what was published, as a time
    kind     'step' (one decode step or one prefill pass), 'request' (whole ones), 'closed loop'
             (requests in flight share steps), 'full' (as many as the memory holds)
    phase    'decode' or 'prefill': what the number is mostly about
    parts    (how often, the step) each; the row's own seconds are those of the case
    assumed  what the source does not state
    """

    point: Point
    stack: str
    machine: str
    seconds: float
    kind: str
    phase: str
    parts: tuple[tuple[float, Row], ...]
    assumed: tuple[str, ...] = ()

    @property
    def row(self) -> Row:
        """The one step of a case of kind 'step', for a fit. Raises ValueError for the others."""
        if self.kind != "step":
            raise ValueError(f"row {self.point.id} is a {self.kind}: only single steps are fitted")
        return self.parts[0][1]

    @property
    def shape(self) -> str:
        """Id of the model's shape."""
        return self.parts[0][1].shape.name

    @property
    def n_gpus(self) -> int:
        """Machines that share each step."""
        return self.parts[0][1].n_gpus

    def predicted(self, machine: Machine) -> float:
        """Seconds that this machine is predicted to take."""
        made = (k * roofline.predict(r.shape, machine, **r.arguments()) for k, r in self.parts)
        return float(sum(made))

    def light(self) -> float:
        """Seconds of the plain roofline at the nameplate: nothing that was done took less."""
        chip = hardware.get(self.machine)
        made = (
            k * roofline.predict(r.shape, chip, **r.arguments()).roofline for k, r in self.parts
        )
        return float(sum(made))


def cases(points: Iterable[Point]) -> tuple[list[Case], list[tuple[Point, str]]]:
    """(cases, [(point, why it is none)]) of the points, each in one of the two lists."""
    made, left = [], []
    for point in points:
        try:
            made.append(case(point))
        except Unmapped as reason:
            left.append((point, str(reason)))
    return made, left


def case(point: Point) -> Case:
    """The case of one point. Raises `Unmapped`, whose message says what is missing."""
    if point.hw == "-":
        raise Unmapped("a count of bytes, not a time: held against the counts in the tests")
    quantity = point.quantity.lower()
    for pattern, make in _QUANTITIES:
        if re.search(pattern, quantity):
            return make(point)
    raise Unmapped(f"{point.quantity!r} is neither the time of a step nor made of such times")


def _time(point: Point, phase: str) -> Case:
    """TTFT, TPOT, ms per token: one step; in a closed loop a step that others share."""
    seconds = value(point) * _UNITS[point.unit]
    if point.batch.startswith("concurrency"):
        return _loop(point, phase, seconds)
    return _step(point, phase, seconds)


def _rate(point: Point, phase: str) -> Case:
    """Tokens per second of one sequence (decode) or of one prompt (prefill)."""
    tokens = number(point.prompt, "the prompt") if phase == "prefill" else 1
    return _step(point, phase, tokens / value(point))


def _step(point: Point, phase: str, seconds: float) -> Case:
    shared = work(point)
    batch = number(point.batch, "the batch")
    if phase == "prefill":
        row = shared.row(phase, batch=batch, prompt=_prompt(point), seconds=seconds)
    else:
        row = shared.row(phase, batch=batch, context=_middle(point), seconds=seconds)
    return _case(point, shared, seconds, "step", phase, ((1.0, row),))


def _requests(point: Point) -> Case:
    """Requests per second of a static batch: prefill and gen − 1 steps for `batch` requests."""
    batch = number(point.batch, "the batch")
    return _whole(point, work(point), batch, batch / value(point), "request")


def _loop_rate(point: Point) -> Case:
    """Output tokens per second of a closed loop: each request is read once and written once."""
    c = _in_flight(point)
    seconds = c * _gen(point) / value(point)
    return _whole(point, work(point), c, seconds, "request" if c == 1 else "closed loop")


def _filled_rate(point: Point) -> Case:
    """Output tokens per second of a full machine: as many requests in flight as memory holds."""
    shared = work(point)
    batch, seconds = _room(point, shared), _room(point, shared) * _gen(point) / value(point)
    return _whole(
        point, shared, batch, seconds, "full",
        (f"{batch} requests in flight, which is what nine tenths of the memory hold",),
    )  # fmt: skip


def _whole(
    point: Point, shared: Work, batch: int, seconds: float, kind: str, assumed: tuple = ()
) -> Case:
    """`batch` requests read in one pass and written in gen − 1 steps."""
    reading = shared.row("prefill", batch=batch, prompt=_prompt(point), seconds=seconds)
    step = shared.row("decode", batch=batch, context=_middle(point), seconds=seconds)
    parts = ((1.0, reading), (_gen(point) - 1.0, step))
    return _case(point, shared, seconds, kind, "decode", parts, assumed)


def _loop(point: Point, phase: str, seconds: float) -> Case:
    """TTFT or ITL with c requests always in flight, which share every step.

    TTFT: requests of equal lengths end together, so that c prompts are read in one pass. ITL: while
    a request writes G tokens the other c − 1 are read once each, which delays each token by
    (c − 1) / G of a prompt's share of a pass. As many requests run as the memory holds.
    """
    c, shared, assumed = _in_flight(point), work(point), ()
    running = max(1, min(c, _room(point, shared)))
    if c > 1:
        assumed += ("each of the other requests in flight is read once per request",)
    if running < c:
        assumed += (f"{running} requests fit in nine tenths of the memory",)
    kind = "step" if c == 1 else "closed loop"
    reading = shared.row("prefill", batch=running, prompt=_prompt(point), seconds=seconds)
    step = shared.row("decode", batch=running, context=_middle(point), seconds=seconds)
    parts = ((1.0, reading),)
    if phase == "decode":
        between = (((running - 1) / running / _gen(point), reading),) if c > 1 else ()
        parts = ((1.0, step), *between)
    return _case(point, shared, seconds, kind, phase, parts, assumed)


_QUANTITIES = (
    (r"^(tpot|itl|tbt|step ms|decode ms)", lambda p: _time(p, "decode")),
    (r"autoregressive|speculative|draft", lambda p: _time(p, "decode")),
    (r"^(ttft|prefill (ms|s))( avg)?( ms)?$", lambda p: _time(p, "prefill")),
    (r"^(decode tok/s( \(median\))?|tg\d+ tok/s)$", lambda p: _rate(p, "decode")),
    (r"^pp\d+ tok/s$", lambda p: _rate(p, "prefill")),
    (r"^requests/s$", _requests),
    (r"^output tok/s total$", _filled_rate),
    (r"^output tok/s$", _loop_rate),
)


def _room(point: Point, shared: Work) -> int:
    """Requests whose KV cache fits beside the weights in nine tenths of the memory."""
    one = shared.row("decode", seconds=1.0)
    held = hardware.get(shared.machine).memory * one.n_gpus * 0.9
    free = held - one.shape.params * bytes_per_weight(one.weight_dtype)
    return int(free / (one.shape.kv_bytes_per_token(one.kv_dtype) * (_prompt(point) + _gen(point))))


def _case(point, shared, seconds, kind, phase, parts, assumed=()) -> Case:
    stack = next((v for k, v in _STACKS.items() if point.source.startswith(k)), point.source)
    assumed = (*shared.assumed, *assumed)
    return Case(point, stack, shared.machine, seconds, kind, phase, parts, assumed)


def _middle(point: Point) -> int:
    """Tokens in the cache of the middle decode step: steps see prompt ... prompt + gen − 2."""
    return _prompt(point) + max(0, _gen(point) - 2) // 2


def _prompt(point: Point) -> int:
    return number(point.prompt, "the prompt")


def _gen(point: Point) -> int:
    return number(point.gen, "the answer's length")


def _in_flight(point: Point) -> int:
    return number(point.batch.replace("concurrency", ""), "the number of requests in flight")
