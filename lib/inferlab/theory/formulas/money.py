"""What it costs: a token, a request on the serving card, a model's life, a margin."""

from __future__ import annotations

from inferlab.theory.equations import equation
from inferlab.theory.notation import Passage

COST = "The cost that never stops"


@equation(
    "cost-per-token",
    title="Cost of a token",
    left="token_cost",
    expression="dollars_per_hour*n_gpus/(seconds_per_hour*utilization*tokens_per_second)",
    example={
        "dollars_per_hour": 2.0,
        "n_gpus": 1,
        "utilization": 0.5,
        "tokens_per_second": 2500.0,
    },
    example_from="assumed: 2 dollars an hour, half of the paid time in use, 2,500 tokens a second",
    reading="Rent runs by the hour, tokens come by the second, and idle hours are paid for too. "
    "Rate and utilization count alike: half the users on the same machine cost twice as much per "
    "token.",
    assumptions=(
        "Machines are rented; energy and everything else is in the rent.",
        "One price for all tokens: read and written ones are not told apart.",
    ),
    passages=(Passage("001", COST, "Every token that is decoded is a real cost that recurs."),),
    claim="batching-helps",
)
def cost_per_token(
    dollars_per_hour: float, n_gpus: float, utilization: float, tokens_per_second: float
) -> float:
    """c = r M / (3600 u v), dollars per token."""
    return dollars_per_hour * n_gpus / (3600.0 * utilization * tokens_per_second)


@equation(
    "serving-card",
    title="The serving card",
    left="request_time",
    expression="card_prefill*prompt_tokens + card_decode*output_tokens"
    " + card_context*(prompt_tokens*output_tokens + output_tokens**2/2)"
    " + card_attention*prompt_tokens**2/2",
    example={
        "card_prefill": 4e-5,
        "prompt_tokens": 1000,
        "card_decode": 4e-4,
        "output_tokens": 300,
        "card_context": 1e-7,
        "card_attention": 1e-9,
    },
    example_from="1,000 tokens read, 300 written; the four constants are assumed",
    reading="Four numbers describe a full server: what a token read costs, what a token written "
    "costs, what each token of context adds to each token written, and what attention adds in "
    "prefill. Their ratio, not a rule, says how much dearer a written token is. Times the rent "
    "it is the cost of any request.",
    assumptions=(
        "The server is saturated: its batch is as large as its memory allows.",
        "Seconds of the whole server, not the time a user waits.",
        "No token of the prompt is found in a shared cache.",
    ),
    passages=(Passage("001", COST, "Decode is called the expensive half."),),
    claim="decode-is-the-dearer-half",
)
def serving_card(
    card_prefill: float,
    prompt_tokens: float,
    card_decode: float,
    output_tokens: float,
    card_context: float,
    card_attention: float,
) -> float:
    """t = a P + b G + c (P G + G^2/2) + d P^2/2, seconds of the whole server per request."""
    pairs = prompt_tokens * output_tokens + output_tokens**2 / 2
    read = card_prefill * prompt_tokens + card_attention * prompt_tokens**2 / 2
    return read + card_decode * output_tokens + card_context * pairs


@equation(
    "lifetime-break-even",
    title="Break-even of a model's life",
    left="break_even_tokens",
    expression="six_flop*train_tokens/two_flop",
    example={"train_tokens": 15e12},
    example_from="a model trained on 15e12 tokens, as Llama 3 is reported to be",
    reading="Training takes 6 N D operations, serving T tokens 2 N T; they are equal when T is "
    "three times D, whatever the size of the model. Whether a model reaches that in its life is "
    "a question to its users, not to arithmetic.",
    assumptions=(
        "Operations only: serving at small batch wastes more of a machine than training does.",
        "Attention, failed runs and experiments before the final training are left out.",
    ),
    passages=(
        Passage(
            "001",
            COST,
            "Training is paid once, inference on every request, and over a model's life serving "
            "almost always costs far more.",
        ),
    ),
    cites=("kaplan-2020", "hoffmann-2022", "sardana-2023"),
    claim="serving-outweighs-training",
)
def lifetime_break_even(train_tokens: float) -> float:
    """T = 6 D / 2 = 3 D, tokens served. Source: Sardana et al. 2023."""
    return 6 * train_tokens / 2


@equation(
    "margin",
    title="Margin",
    left="margin",
    expression="(token_price - token_cost)/token_price",
    example={"token_price": 2.19e-6, "token_cost": 0.5e-6},
    example_from="2.19 dollars per million tokens written, the list price of DeepSeek-R1 in 2025; "
    "a cost of 0.50 is assumed",
    reading="What is left of a dollar of revenue when the machines are paid. Zero is the break-"
    "even price, which is the cost; below it every token loses money.",
    assumptions=(
        "Cost and price are per token of the same kind.",
        "Only the machines are counted: neither research nor training nor people.",
    ),
    passages=(
        Passage("001", COST, "The question is whether the revenue per token exceeds its cost."),
    ),
    cites=("deepseek-2025",),
    claim="revenue-must-clear-cost",
)
def margin(token_price: float, token_cost: float) -> float:
    """(p - c) / p, a share of the revenue; negative below the break-even price."""
    if not token_price > 0:
        raise ValueError(f"token_price={token_price}: a share of the revenue needs one above zero")
    return (token_price - token_cost) / token_price
