"""What users wait for: TTFT, TPOT, goodput, Little's law, rounds of draft and verify."""

from __future__ import annotations

from collections.abc import Sequence

from inferlab.theory.equations import equation
from inferlab.theory.notation import Passage

PHASES = "Two phases, two bottlenecks"


@equation(
    "ttft",
    title="Time to first token",
    left="ttft",
    expression="first - sent",
    example={"sent": 0.0, "first": 0.45},
    example_from="a request sent at 0 s whose first token arrived at 0.45 s",
    reading="What a reader feels as the answer beginning. Prefill is a part of it; waiting in "
    "line, the way there and back, and the first sample are the others.",
    assumptions=("Both moments are read on one clock, that of whoever waits.",),
    passages=(Passage("001", f"{PHASES}, on prefill", "Prefill sets the time to first token."),),
    cites=("databricks-2023",),
    claim="prefill-sets-ttft",
)
def ttft(sent: float, first: float) -> float:
    """TTFT = t_first - t_sent, seconds."""
    return first - sent


@equation(
    "tpot",
    title="Time per output token",
    left="tpot",
    expression="(last - first)/(output_tokens - first_token)",
    example={"first": 0.45, "last": 4.44, "output_tokens": 400},
    example_from="400 tokens, the first at 0.45 s and the last at 4.44 s",
    reading="G tokens span G - 1 intervals, and the wait for the first is not one of them. "
    "Dividing the whole time by G mixes two phases into one number.",
    assumptions=("The answer has at least two tokens.", "Each token is seen when it arrives."),
    passages=(
        Passage("001", f"{PHASES}, on decode", "Generation comes out at a steady, limited pace."),
    ),
    cites=("databricks-2023",),
    claim="steady-pace",
)
def tpot(first: float, last: float, output_tokens: float) -> float:
    """TPOT = (t_last - t_first) / (G - 1), seconds per token.

    Raises ValueError for fewer than two tokens, where it is undefined.
    """
    if output_tokens < 2:
        raise ValueError(
            f"TPOT is undefined for {output_tokens} output tokens: it needs at least two"
        )
    return (last - first) / (output_tokens - 1)


@equation(
    "goodput",
    title="Goodput",
    left="goodput",
    expression="Sum(kept[i], (i, 1, n_requests))/window",
    example={"kept": (1, 1, 0, 1, 1, 0, 1, 1), "window": 4.0},
    example_from="eight requests in four seconds, two of which were too slow",
    reading="Count the requests that stayed within both limits and divide by the time. A server "
    "that is pushed harder finishes more requests and keeps fewer of its promises: throughput "
    "grows, goodput falls.",
    assumptions=(
        "The limits are agreed on before, and a request keeps both or counts as lost.",
        "The time is long against one request.",
        "Every request counts by itself. Goodput is also stated as the highest rate of arrival at "
        "which a set share of the requests, such as 90 %, stays within the limits.",
    ),
    cites=("zhong-2024",),
)
def goodput(kept: Sequence[float], window: float) -> float:
    """Requests per second that kept their limits: sum of s_i / t_obs, s_i 1 or 0."""
    if not window > 0:
        raise ValueError(f"window={window}: a rate needs a time above zero")
    return sum(kept) / window


@equation(
    "littles-law",
    title="Little's law",
    left="in_system",
    expression="arrivals*stay",
    example={"arrivals": 12.0, "stay": 6.5},
    example_from="12 requests per second that each stay 6.5 s",
    reading="If 12 come in each second and each stays for 6.5 s, 78 are inside at any moment. It "
    "needs no assumption on chance: not how requests arrive, not in which order they are served. "
    "It turns a wished throughput into the batch a server must hold, and that into memory.",
    assumptions=(
        "Averages over a long time in which as many requests leave as arrive.",
        "Rate and stay are those of the same system: with the queue or without it.",
    ),
    cites=("little-1961",),
)
def littles_law(arrivals: float, stay: float) -> float:
    """R_in = lambda W, requests. Source: Little 1961."""
    return arrivals * stay


@equation(
    "speculative-tokens",
    title="Tokens of a speculative round",
    left="tokens_per_round",
    expression="per_round*(1 - acceptance**(guesses + 1))/(1 - acceptance)",
    example={"acceptance": 0.8, "guesses": 4},
    example_from="four guesses, each kept with probability 0.8",
    reading="The first token of a round is sure, the second comes if the first guess is kept, the "
    "third if two are kept, and so on: 1 + α + α² + … up to the power γ, which is this fraction. "
    "More guesses help less and less, and each of them costs a pass of the small model.",
    assumptions=(
        "Each guess is kept with the same probability, independently of the others.",
        "The acceptance rate is below 1; at 1 a round yields γ + 1 tokens.",
    ),
    passages=(
        Passage(
            "001",
            "Read the prompt fast; write the answer slow",
            "Each pass depends on the one before, so they cannot run in parallel. Guesses can be "
            "verified in parallel, which is what this counts.",
        ),
    ),
    cites=("leviathan-2022",),
    claim="each-step-depends-on-the-last",
)
def speculative_tokens(acceptance: float, guesses: float) -> float:
    """m = (1 - alpha^(gamma + 1)) / (1 - alpha), tokens per round; gamma + 1 at alpha = 1."""
    if not 0 <= acceptance <= 1:
        raise ValueError(f"acceptance={acceptance}: a probability, 0 to 1")
    if acceptance == 1:
        return guesses + 1
    return (1 - acceptance ** (guesses + 1)) / (1 - acceptance)
