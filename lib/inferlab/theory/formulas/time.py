"""How long, and how near to the ceiling: intensity, ridge, roofline, additive time, shares."""

from __future__ import annotations

from inferlab.theory.equations import equation
from inferlab.theory.notation import Passage

MATH = "Two FLOPs per parameter, per token"
PHASES = "Two phases, two bottlenecks"
# One decode step of Llama-3-8B in bf16 for one user with 1,024 tokens cached, on nameplate figures
# of an H100 SXM: 7.505e9 weights read, 2 FLOP each and 4 L H D_h for each of 1,025 tokens seen.
FLOPS = 2 * 7.505e9 + 4 * 32 * 32 * 128 * 1025
BYTES = 7.505e9 * 2 + 1026 * 131072
PEAK, BANDWIDTH = 989.4e12, 3.35e12
STEP = "one decode step of Llama-3-8B in bf16, 1,024 tokens in the cache, on an H100's nameplate"


@equation(
    "arithmetic-intensity",
    title="Arithmetic intensity",
    left="intensity",
    expression="step_flops/step_bytes",
    example={"step_flops": FLOPS, "step_bytes": BYTES},
    example_from=STEP,
    reading="How much use is made of each byte once it is there. Reading a prompt uses each "
    "weight for all its tokens, writing for one user uses it once: about 1 FLOP per byte with "
    "16-bit weights, where machines could do hundreds.",
    assumptions=("The bytes are those that must come from memory, not those found in a cache.",),
    passages=(
        Passage(
            "001",
            MATH,
            "The ratio of operations to bytes explains why decode leaves compute idle and why "
            "fewer bits and batching help.",
        ),
    ),
    cites=("williams-2009",),
    claim="arithmetic-intensity-explains",
)
def arithmetic_intensity(step_flops: float, step_bytes: float) -> float:
    """I = C / Q, FLOP per byte. Source: Williams et al. 2009."""
    return step_flops / step_bytes


@equation(
    "ridge-point",
    title="Ridge point",
    left="ridge",
    expression="peak_flops/bandwidth",
    example={"peak_flops": PEAK, "bandwidth": BANDWIDTH},
    example_from="an H100 SXM in bf16, nameplate",
    reading="A property of the machine alone: how many operations it can do while one byte "
    "arrives. Work with a lower intensity waits for memory, with a higher one for the compute "
    "units.",
    assumptions=("Both ceilings are of one kind, nameplate or measured, and of one data type.",),
    passages=(
        Passage("001", f"{PHASES}, on decode", "The limit moves from compute to memory bandwidth."),
    ),
    cites=("williams-2009",),
    claim="decode-memory-bound",
)
def ridge_point(peak_flops: float, bandwidth: float) -> float:
    """I_ridge = F / BW, FLOP per byte. Source: Williams et al. 2009."""
    return peak_flops / bandwidth


@equation(
    "roofline-time",
    title="Roofline time",
    left="roofline_time",
    expression="Max(step_flops/peak_flops, step_bytes/bandwidth)",
    example={
        "step_flops": FLOPS,
        "peak_flops": PEAK,
        "step_bytes": BYTES,
        "bandwidth": BANDWIDTH,
    },
    example_from=STEP,
    reading="Computing takes one time, moving another; if they overlap completely, the longer one "
    "is the time of the step. No implementation beats it on these ceilings.",
    assumptions=(
        "Computing and moving overlap completely, over the whole step.",
        "Starting operations costs nothing.",
    ),
    passages=(
        Passage(
            "001",
            PHASES,
            "Prefill is limited by compute, decode by memory: two cases of this maximum.",
        ),
    ),
    cites=("williams-2009", "pope-2022"),
    claim="decode-memory-bound",
)
def roofline_time(
    step_flops: float, peak_flops: float, step_bytes: float, bandwidth: float
) -> float:
    """t = max(C / F, Q / BW), seconds per step. Source: Williams et al. 2009."""
    return max(step_flops / peak_flops, step_bytes / bandwidth)


@equation(
    "additive-time",
    title="Additive time",
    left="step_time",
    expression="n_layers*fixed_time + step_bytes/(bandwidth_share*bandwidth)"
    " + step_flops/(peak_share*peak_flops)",
    example={
        "n_layers": 32,
        "fixed_time": 5e-6,
        "step_bytes": BYTES,
        "bandwidth_share": 0.8,
        "bandwidth": BANDWIDTH,
        "step_flops": FLOPS,
        "peak_share": 0.6,
        "peak_flops": PEAK,
    },
    example_from=STEP + "; the three fitted values are assumed here: 5 µs, 0.8 and 0.6",
    reading="The step as a sum of three waits: starting the operations, moving at the bandwidth "
    "that is really reached, computing at the rate that is really reached. Each operation of a "
    "step has its own limit, so over a whole step the parts follow one another more than they "
    "overlap. Which term is large says what a faster machine would have to have.",
    assumptions=(
        "The three constants are those of one machine, one phase and one way of computing.",
        "Operations that wait for memory do not overlap with operations that compute.",
    ),
    passages=(
        Passage(
            "001",
            f"{PHASES}, on decode",
            "The GPU mostly waits for memory: the second term. The source has no word for the "
            "first, which can be the largest for a small model on a fast machine.",
        ),
    ),
    cites=("scaling-book",),
    claim="decode-memory-bound",
)
def additive_time(
    n_layers: float,
    fixed_time: float,
    step_bytes: float,
    bandwidth_share: float,
    bandwidth: float,
    step_flops: float,
    peak_share: float,
    peak_flops: float,
) -> float:
    """t = L t0 + Q / (beta BW) + C / (phi F), seconds per step."""
    moving = step_bytes / (bandwidth_share * bandwidth)
    computing = step_flops / (peak_share * peak_flops)
    return n_layers * fixed_time + moving + computing


@equation(
    "critical-batch",
    title="Critical batch",
    left="critical_batch",
    expression="once_per_step*peak_flops*bytes_per_weight/(two_flop*bandwidth)",
    example={"peak_flops": PEAK, "bytes_per_weight": 2, "bandwidth": BANDWIDTH},
    example_from="bf16 weights on an H100 SXM, nameplate",
    reading="Set 2 N B / F equal to N b / BW and solve for B. The size of the model cancels. Up "
    "to this many tokens a step's matrix products wait for the weights and further tokens are "
    "almost free; beyond it every token costs its operations.",
    assumptions=(
        "Matrix products with weights only: the KV cache is read for each sequence and never "
        "becomes cheaper by batching.",
        "Both ceilings are reached in full.",
        "Weights are computed with in the type whose peak rate is F.",
    ),
    passages=(
        Passage(
            "001",
            "The cost that never stops",
            "Providers pack many users together to fill the compute units that one leaves idle.",
        ),
    ),
    cites=("scaling-book", "pope-2022"),
    claim="batching-helps",
)
def critical_batch(peak_flops: float, bytes_per_weight: float, bandwidth: float) -> float:
    """B_crit = F b / (2 BW), tokens per step. Source: How to Scale Your Model, part 1."""
    return peak_flops * bytes_per_weight / (2 * bandwidth)


@equation(
    "mfu",
    title="Model FLOP utilization",
    left="mfu",
    expression="flops/(seconds*peak_flops)",
    example={"flops": FLOPS, "seconds": 0.008, "peak_flops": PEAK},
    example_from=STEP + "; a time of 8 ms is assumed",
    reading="The rate that was reached, as a share of the highest possible. In decode with few "
    "users it is a few thousandths, and that is no fault of the program: the step waits for "
    "memory, and MBU is the share to look at.",
    assumptions=(
        "The operations are those that the model needs, not those that were executed.",
        "The ceiling is named: nameplate or measured, dense, in the type used.",
    ),
    passages=(
        Passage("001", f"{PHASES}, on decode", "The compute units are mostly idle."),
        Passage("001", f"{PHASES}, on prefill", "The compute units are used efficiently."),
    ),
    cites=("chowdhery-2022",),
    claim="compute-idle-in-decode",
)
def mfu(flops: float, seconds: float, peak_flops: float) -> float:
    """MFU = C / (t F), 0 ... 1. Source: PaLM, appendix B."""
    return flops / (seconds * peak_flops)


@equation(
    "mbu",
    title="Memory bandwidth utilization",
    left="mbu",
    expression="bytes_moved/(seconds*bandwidth)",
    example={"bytes_moved": BYTES, "seconds": 0.008, "bandwidth": BANDWIDTH},
    example_from=STEP + "; a time of 8 ms is assumed",
    reading="The bytes that a step must move, divided by the time and by what the memory could "
    "have delivered. A decode step at small batch is as good as its MBU.",
    assumptions=(
        "The bytes are weights and KV cache, each once; what else was moved counts as loss.",
        "The ceiling is named: nameplate or measured, and measured beside the run.",
    ),
    passages=(
        Passage(
            "001",
            f"{PHASES}, on decode",
            "Decode is limited by the bandwidth of the memory.",
        ),
    ),
    cites=("databricks-2023",),
    claim="decode-memory-bound",
)
def mbu(bytes_moved: float, seconds: float, bandwidth: float) -> float:
    """MBU = Q / (t BW), 0 ... 1. Source: Databricks 2023."""
    return bytes_moved / (seconds * bandwidth)
