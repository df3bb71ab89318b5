"""Symbols of the machine and of time: ceilings, shares of them, intensity, seconds of a step."""

from __future__ import annotations

from inferlab.theory.notation.terms import Passage, Symbol, table

MATH = "Two FLOPs per parameter, per token"
PHASES = "Two phases, two bottlenecks"

SYMBOLS = table(
    Symbol(
        name="peak_flops",
        letter="F",
        title="peak rate of computing",
        unit="FLOP/second",
        role="machine",
        meaning="The most operations that the machine does in a second, in the data type used.",
        origin="nameplate (dense, `hardware.get`) or measured (`lab.calibrate`); which is always "
        "said",
        about="Makers also print a rate for sparse matrices, which is twice as high and not "
        "reached by a dense model.",
        passage=Passage("001", f"{PHASES}, on prefill", "The compute of the GPU is the limit."),
        cites=("williams-2009",),
    ),
    Symbol(
        name="bandwidth",
        letter="BW",
        title="memory bandwidth",
        unit="byte/second",
        role="machine",
        meaning="The most bytes that the machine reads from its memory in a second.",
        origin="nameplate (`hardware.get`) or measured (`lab.calibrate`); which is always said",
        about="Of the memory that holds the weights, not of a cache: a benchmark on a small "
        "buffer measures the cache.",
        passage=Passage(
            "001", f"{PHASES}, on decode", "The limit moves from compute to memory bandwidth."
        ),
        cites=("williams-2009",),
    ),
    Symbol(
        name="intensity",
        letter="I",
        title="arithmetic intensity",
        unit="FLOP/byte",
        role="result",
        meaning="How many operations are done for each byte that is moved.",
        passage=Passage(
            "001",
            MATH,
            "The ratio of operations to bytes is why decode leaves most of the compute idle.",
        ),
        cites=("williams-2009",),
    ),
    Symbol(
        name="ridge",
        letter="I",
        sub="ridge",
        title="ridge point",
        unit="FLOP/byte",
        role="result",
        meaning="The arithmetic intensity at which computing and moving take equally long.",
        about="Work below it waits for memory, work above it for the compute units.",
        cites=("williams-2009",),
    ),
    Symbol(
        name="roofline_time",
        letter="t",
        sub="roof",
        title="roofline time of a step",
        unit="second/step",
        role="result",
        meaning="The time of a step if the shorter of computing and moving hides behind the "
        "longer.",
        about="A lower bound: no machine with these ceilings is faster.",
        cites=("williams-2009",),
    ),
    Symbol(
        name="step_time",
        letter="t",
        sub="step",
        title="time of a step",
        unit="second/step",
        role="result",
        meaning="How long one pass is expected to take, fixed costs included.",
    ),
    Symbol(
        name="fixed_time",
        letter="t",
        sub="0",
        title="fixed time of a layer",
        unit="second/(layer*step)",
        role="fitted",
        meaning="What one layer costs in a step however little work it holds: starting its "
        "operations and waiting between them.",
        origin="`lab.calibrate`, or fitted to measurements",
    ),
    Symbol(
        name="bandwidth_share",
        letter="β",
        title="share of the bandwidth reached",
        unit="1",
        role="fitted",
        meaning="Which part of the bandwidth the operations of a step reach.",
        origin="`lab.calibrate`, or fitted to measurements",
    ),
    Symbol(
        name="peak_share",
        letter="φ",
        title="share of the peak rate reached",
        unit="1",
        role="fitted",
        meaning="Which part of the peak rate of computing the operations of a step reach.",
        origin="`lab.calibrate`, or fitted to measurements",
    ),
    Symbol(
        name="flops",
        letter="C",
        title="FLOPs done",
        unit="FLOP",
        role="counted",
        meaning="How many operations the model needs for what was done in the time measured.",
        origin="`counts.step(...).flops`: what the model needs, not what a kernel executes",
        about="A kernel that computes masked pairs or recomputes anything does more; that is not "
        "counted.",
        cites=("chowdhery-2022",),
    ),
    Symbol(
        name="bytes_moved",
        letter="Q",
        title="bytes moved",
        unit="byte",
        role="counted",
        meaning="How many bytes of weights and KV cache had to be moved in the time measured.",
        origin="`counts.step(...).bytes_streamed`",
    ),
    Symbol(
        name="seconds",
        letter="t",
        title="time measured",
        unit="second",
        role="measured",
        meaning="How long it took.",
        origin="the meter: the median of several runs",
    ),
    Symbol(
        name="mfu",
        letter="MFU",
        title="model FLOP utilization",
        unit="1",
        role="result",
        meaning="The share of the peak rate that reached the model: 0 to 1.",
        passage=Passage(
            "001",
            f"{PHASES}, on decode",
            "The arithmetic of a step is tiny beside the weights moved, and the compute units "
            "mostly wait.",
        ),
        cites=("chowdhery-2022",),
    ),
    Symbol(
        name="mbu",
        letter="MBU",
        title="memory bandwidth utilization",
        unit="1",
        role="result",
        meaning="The share of the bandwidth that the needed bytes took: 0 to 1.",
        about="Also called model bandwidth utilization.",
        cites=("databricks-2023",),
    ),
    Symbol(
        name="once_per_step",
        letter="1",
        title="once per step",
        unit="1/step",
        role="constant",
        value=1,
        shown=False,
        meaning="Each weight is read once in a step, however many tokens share it.",
    ),
    Symbol(
        name="critical_batch",
        letter="B",
        sub="crit",
        title="critical batch",
        unit="token/step",
        role="result",
        meaning="How many tokens a step must hold for its matrix products to compute as long as "
        "their weights take to read.",
        about="Below it another token is almost free, above it each one costs time. It depends "
        "on the machine and on the bytes per weight, not on the model.",
        passage=Passage("001", MATH, "Batching matters because the weights are read once for all."),
        cites=("scaling-book", "pope-2022"),
    ),
)
