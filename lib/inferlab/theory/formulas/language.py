"""The model as a distribution: probability of a text, softmax, attention, perplexity."""

from __future__ import annotations

import math
from collections.abc import Sequence

from inferlab.theory.equations import equation
from inferlab.theory.notation import Passage

AROUND = "What the article says around this equation"


@equation(
    "sequence-probability",
    title="Probability of a sequence",
    left="sequence_probability[sequence]",
    expression="Product(p_next[t + 1], (t, 0, length - 1))",
    example={"p_next": (0.02, 0.6, 0.9, 0.75)},
    example_from="four tokens; the model was sure of the third",
    reading="The model never says how likely a text is as a whole. It says, at each position, how "
    "likely every next token is, and the product of the numbers at the tokens that do come is the "
    "probability of the text. To read, all factors are computed at once, since all tokens are "
    "known. To write, the factor at t + 1 cannot be asked for before the token at t is drawn.",
    assumptions=(
        "The model is causal: the factor at t + 1 depends on the tokens up to t alone.",
        "Nothing stands before the first token, or a fixed token that begins every text.",
    ),
    passages=(
        Passage(
            "000",
            AROUND,
            "That a request has two phases follows from autoregression: the tokens of the prompt "
            "are all known, those of the answer come one from another, so position t + 1 cannot "
            "be computed before position t is sampled.",
        ),
        Passage(
            "000",
            "What does this equation mean?",
            "t + 1 is the position that follows t.",
        ),
    ),
    cites=("bengio-2003",),
    claim="later-positions-do-not-exist",
)
def sequence_probability(p_next: Sequence[float]) -> float:
    """p(x) = product of p(x_{t+1} | x_{<=t}); 1 for an empty text. Source: Bengio et al. 2003."""
    return math.prod(p_next)


@equation(
    "softmax",
    title="Softmax with temperature",
    left="probability[i]",
    expression="exp(logits[i]/temperature)/Sum(exp(logits[j]/temperature), (j, 1, vocab))",
    example={"logits": (3.0, 2.0, 0.5, -1.0), "temperature": 0.7},
    example_from="a vocabulary of four tokens",
    reading="Each logit becomes a positive number, and each number is divided by the sum of all, "
    "so that they add up to 1. Adding the same amount to all logits changes nothing. A low "
    "temperature stretches the differences before they are turned into ratios, a high one "
    "shrinks them.",
    assumptions=(
        "The temperature is above 0; 0 stands for always taking the likeliest token.",
        "No other filter (top-k, top-p, min-p) has been applied.",
    ),
    passages=(
        Passage(
            "001",
            "Two phases, two bottlenecks, on learning",
            "The frozen model is called a pure function from tokens to tokens. It is one from "
            "tokens to these probabilities; the draw from them is not the model's.",
        ),
    ),
    cites=("hinton-2015",),
    claim="pure-function-of-tokens",
)
def softmax(logits: Sequence[float], temperature: float) -> tuple[float, ...]:
    """p_i = exp(z_i / T) / sum over j of exp(z_j / T), written so that nothing overflows.

    Raises ValueError for a temperature that is not above zero. Source: Hinton et al. 2015.
    """
    if not temperature > 0:
        raise ValueError(f"temperature={temperature}: above 0; greedy decoding takes the maximum")
    top = max(logits)
    weights = [math.exp((z - top) / temperature) for z in logits]
    total = sum(weights)
    return tuple(w / total for w in weights)


_SCORE = "exp(Sum(query[a]*keys[j, a], (a, 1, key_width))/sqrt(key_width))"


@equation(
    "attention",
    title="Attention of one query",
    left="attention_output[m]",
    expression=f"Sum({_SCORE}*values[j, m], (j, 1, length))/Sum({_SCORE}, (j, 1, length))",
    example={
        "query": (1.0, 0.0),
        "keys": ((1.0, 0.5), (0.0, 1.0), (-1.0, 0.2)),
        "values": ((2.0, 0.0), (0.0, 1.0), (1.0, 1.0)),
    },
    example_from="three tokens seen, one head, two components",
    reading="The query is compared with every key by a sum of products; the comparisons become "
    "weights through softmax; the result is the weighted mean of the values. For a new token all "
    "keys and values but its own come from the KV cache: each is read once and used for 2 FLOP "
    "per number, which is why attention in decode waits for memory.",
    assumptions=(
        "One query of one head; the query is the newest token, so no mask is needed.",
        "Keys and queries already carry their rotary position.",
    ),
    passages=(
        Passage(
            "001",
            "Two phases, two bottlenecks, on the KV cache",
            "Keys and values of earlier tokens are cached so that they need not be computed again "
            "at every step.",
        ),
        Passage(
            "000",
            AROUND,
            "In prefill, attention of all positions of the prompt is computed at once.",
        ),
    ),
    cites=("vaswani-2017", "shazeer-2019"),
    claim="cache-avoids-recomputing",
)
def attention(
    query: Sequence[float], keys: Sequence[Sequence[float]], values: Sequence[Sequence[float]]
) -> tuple[float, ...]:
    """o = sum over j of softmax_j(q . k_j / sqrt(d_k)) v_j, for one query of one head.

    query (d_k,), keys (n, d_k), values (n, d_v); returns (d_v,).
    Source: Vaswani et al. 2017, section 3.2.1.
    """
    root = math.sqrt(len(query))
    scores = [sum(q * k for q, k in zip(query, key, strict=True)) / root for key in keys]
    weights = softmax(scores, 1.0)
    return tuple(
        sum(w * v for w, v in zip(weights, column, strict=True))
        for column in zip(*values, strict=True)
    )


@equation(
    "perplexity",
    title="Perplexity",
    left="perplexity",
    expression="exp(-(1/length*Sum(log(p_next[t]), (t, 1, length))))",
    example={"p_next": (0.02, 0.6, 0.9, 0.75)},
    example_from="four tokens; the model was sure of the third",
    reading="The mean of the logarithms, with its sign turned, is how surprised the model was per "
    "token; the exponential turns that back into a number of choices. It is the probability of "
    "the text to the power of -1/n, so texts of different length can be compared.",
    assumptions=(
        "Every token of the text is predicted, with all tokens before it in view.",
        "Texts are cut by the same tokenizer, else the numbers of tokens differ.",
    ),
    cites=("bengio-2003",),
)
def perplexity(p_next: Sequence[float]) -> float:
    """PPL = exp(-mean of ln p(x_t | x_<t)). Raises ValueError for no token at all."""
    if not p_next:
        raise ValueError("the perplexity of no token is undefined: pass at least one probability")
    return math.exp(-math.fsum(math.log(p) for p in p_next) / len(p_next))
