"""The operations between the symbols, and the words of the field that are no quantities."""

from __future__ import annotations

from inferlab.theory.notation.terms import Operation, Word

_OPERATIONS = (
    Operation(
        "addition",
        "+",
        "addition",
        "Both quantities together.",
        "Both must have the same unit, to the last factor: bytes with bytes, not GB with GiB.",
        "In an index, as in t + 1, it is one step along the sequence. In a time it says that "
        "nothing overlaps: the parts follow one another.",
    ),
    Operation(
        "subtraction",
        "−",
        "subtraction",
        "The difference of two quantities.",
        "Both must have the same unit.",
        "Of two moments on one clock it is a duration; where the clock's zero lies cancels out.",
    ),
    Operation(
        "product",
        "·",
        "product",
        "One quantity for each unit of the other. Between letters the sign is left out.",
        "Units multiply: bytes per parameter times parameters are bytes.",
        "A chain of products is a chain of questions: how many layers, heads in each, numbers in "
        "each head, bytes of each number.",
    ),
    Operation(
        "division",
        "/",
        "division",
        "The quantity above the line for each unit of the one below.",
        "Units divide: FLOP divided by FLOP per second are seconds.",
        "Work divided by a rate is a time; a rate divided by a ceiling is a share of it.",
    ),
    Operation(
        "power",
        "aᵇ",
        "power",
        "The base multiplied by itself as often as the exponent says.",
        "The exponent is a plain number. The probability that an event fails T times in a row is "
        "such a power.",
    ),
    Operation(
        "square-root",
        "√",
        "square root",
        "The number whose square stands under the sign.",
        "The unit's exponent is halved; here it stands over a plain number.",
    ),
    Operation(
        "exponential",
        "exp",
        "exponential",
        "e to the power of what follows: it turns differences into ratios.",
        "What follows is a plain number, and so is the result.",
    ),
    Operation(
        "logarithm",
        "ln",
        "natural logarithm",
        "The inverse of the exponential: it turns products into sums.",
        "What follows is a plain number, and so is the result.",
    ),
    Operation(
        "sum",
        "∑",
        "sum",
        "What follows, added up for every value of the index from the lower to the upper limit.",
        "The unit is that of each term.",
        "Read it as a loop: start at zero, add one term for each value of the index.",
    ),
    Operation(
        "product-over",
        "∏",
        "product over an index",
        "What follows, multiplied for every value of the index from the lower to the upper limit.",
        "The terms are plain numbers.",
        "Read it as a loop: start at one, multiply by one term for each value of the index.",
    ),
    Operation(
        "maximum",
        "max",
        "maximum",
        "The larger of the quantities in the brackets.",
        "All must have the same unit.",
        "In a time it says that the shorter part hides behind the longer one. A sum in its place "
        "would say that they follow one another; real machines lie between.",
    ),
)

OPERATIONS = {o.name: o for o in _OPERATIONS}

WORDS = (
    Word("arithmetic ceiling", "The peak rate of computing of a machine.", ("peak_flops",)),
    Word(
        "autoregressive",
        "Writing one token at a time, each from all those before it.",
        ("p_next", "t"),
    ),
    Word(
        "decode",
        "The phase that writes: one pass of the model for each token, each waiting for the last.",
        ("output_tokens", "decode_flops", "tpot"),
    ),
    Word(
        "FLOP",
        "One operation on floating-point numbers, an addition or a multiplication. FLOPs are "
        "several of them, FLOP/s a rate.",
        ("two_flop", "flops"),
    ),
    Word("forward pass", "All layers of the model computed once, from tokens to logits.", ()),
    Word(
        "ITL",
        "Inter-token latency: the single times between one token and the next. TPOT is their mean "
        "over an answer.",
        ("tpot",),
    ),
    Word(
        "KV cache",
        "The keys and values of all tokens so far, kept in memory so that they are not computed "
        "again.",
        ("kv_per_token", "keys", "values"),
    ),
    Word(
        "nameplate",
        "What the maker of a machine states, as against what was measured on it.",
        ("peak_flops", "bandwidth"),
    ),
    Word(
        "prefill",
        "The phase that reads: one pass of the model over all tokens of the prompt at once.",
        ("prompt_tokens", "prefill_flops", "ttft"),
    ),
    Word(
        "roofline",
        "The picture of a machine with two limits, computing and moving, of which the tighter "
        "one counts.",
        ("ridge", "roofline_time"),
    ),
    Word(
        "sampler",
        "What draws a token from the probabilities that the model gives.",
        ("temperature", "probability"),
    ),
    Word("SLO", "A limit on a latency that a service promises to keep.", ("goodput",)),
    Word("token", "A piece of text, from one byte to a long word, with a number.", ("sequence",)),
)
