"""How much work: FLOPs of a request, bytes of a step, the KV cache, experts."""

from __future__ import annotations

from inferlab.theory.equations import equation
from inferlab.theory.notation import Passage

MATH = "Two FLOPs per parameter, per token"
REQUEST = "the source's request: 70 billion parameters, 500 tokens read, 500 written"
LEFT_OUT = "Attention is left out: the operations on scores and values grow with the context."
DENSE = "Every parameter takes part once per token: no input embedding, no expert left out."


@equation(
    "prefill-flops",
    title="FLOPs of prefill",
    left="prefill_flops",
    expression="two_flop*n_params*prompt_tokens",
    example={"n_params": 70e9, "prompt_tokens": 500},
    example_from=REQUEST,
    reading="Each weight meets each token of the prompt once, with a multiplication and an "
    "addition. All of it is done in one pass, so a machine can do many tokens at the same time.",
    assumptions=(DENSE, LEFT_OUT),
    passages=(
        Passage(
            "001",
            MATH,
            "A forward pass costs about 2 N operations per token, so a prompt of P tokens costs "
            "about 2 N P, in one parallel pass.",
        ),
    ),
    cites=("kaplan-2020",),
    claim="prefill-flops",
)
def prefill_flops(n_params: float, prompt_tokens: float) -> float:
    """C_prefill = 2 N P, FLOP. Source: Kaplan et al. 2020, section 2.1."""
    return 2 * n_params * prompt_tokens


@equation(
    "decode-flops",
    title="FLOPs of decode",
    left="decode_flops",
    expression="two_flop*n_params*output_tokens",
    example={"n_params": 70e9, "output_tokens": 500},
    example_from=REQUEST,
    reading="Written tokens cost as many operations as read ones. What differs is the order: each "
    "of these passes holds one token and waits for the pass before it, so the weights are fetched "
    "anew for each. Prefill already gives the first token of the answer, so strictly G - 1 "
    "passes follow it.",
    assumptions=(DENSE, LEFT_OUT),
    passages=(
        Passage(
            "001",
            MATH,
            "An answer of G tokens costs about 2 N G, in G passes that follow one another; the "
            "counts may be equal to those of prefill and the times are not.",
        ),
    ),
    cites=("kaplan-2020",),
    claim="decode-flops",
)
def decode_flops(n_params: float, output_tokens: float) -> float:
    """C_decode = 2 N G, FLOP. Source: Kaplan et al. 2020, section 2.1."""
    return 2 * n_params * output_tokens


@equation(
    "total-flops",
    title="FLOPs of a request",
    left="total_flops",
    expression="two_flop*n_params*(prompt_tokens + output_tokens)",
    example={"n_params": 70e9, "prompt_tokens": 500, "output_tokens": 500},
    example_from=REQUEST,
    reading="Counted in operations a token is a token, read or written. That is why operations "
    "alone do not explain what a request costs.",
    assumptions=(DENSE, LEFT_OUT),
    passages=(Passage("001", MATH, "The whole request costs about 2 N (P + G)."),),
    cites=("kaplan-2020",),
    claim="total-flops",
)
def total_flops(n_params: float, prompt_tokens: float, output_tokens: float) -> float:
    """C_total = 2 N (P + G), FLOP. Source: Kaplan et al. 2020, section 2.1."""
    return 2 * n_params * (prompt_tokens + output_tokens)


@equation(
    "step-bytes",
    title="Bytes of a decode step",
    left="step_bytes",
    expression="params_read*bytes_per_weight + batch*(seen + written_token)*kv_per_token",
    example={
        "params_read": 7.505e9,
        "bytes_per_weight": 2,
        "batch": 1,
        "seen": 1025,
        "kv_per_token": 131072,
    },
    example_from="Llama-3-8B in bf16, one user, 1,024 tokens in the cache",
    reading="The weights are read once, whatever the batch; the cache is read once for each "
    "sequence, and one token is written to it. Divided by the bandwidth this is the time below "
    "which no step can fall. A factor 2 before N does not belong here: it is the 2 of the "
    "operations, or the two bytes of a 16-bit weight, or keys and values.",
    assumptions=(
        "A dense model without a sliding window; every sequence sees the same number of tokens.",
        "Weights are read once per step and do not stay in a cache of the machine.",
        "Activations and rows of the input embedding are left out.",
    ),
    passages=(
        Passage(
            "001",
            MATH,
            "The bytes moved per step are given as about 2 N times the bytes per parameter.",
        ),
        Passage(
            "001",
            "Two phases, two bottlenecks, on decode",
            "Each token needs the weights to be loaded from memory for one pass.",
        ),
    ),
    cites=("pope-2022", "scaling-book"),
    claim="bytes-per-step",
)
def step_bytes(
    params_read: float, bytes_per_weight: float, batch: float, seen: float, kv_per_token: float
) -> float:
    """Q = N_read b + B (S + 1) kappa, byte per decode step.

    Equal to `counts.bytes_per_step` for a dense model without window whose weights all have one
    type. Source: Pope et al. 2022; How to Scale Your Model, part 7.
    """
    return params_read * bytes_per_weight + batch * (seen + 1) * kv_per_token


@equation(
    "kv-bytes-per-token",
    title="KV bytes per token",
    left="kv_per_token",
    expression="two_kv*n_layers*n_kv_heads*head_dim*bytes_per_element",
    example={"n_layers": 32, "n_kv_heads": 8, "head_dim": 128, "bytes_per_element": 2},
    example_from="Llama-3-8B, cache in bf16",
    reading="A key and a value, in every layer, for every KV head, of so many numbers, each of so "
    "many bytes. The query heads do not appear: they may be many and share few keys and values.",
    assumptions=(
        "Keys and values are kept apart (MHA, GQA, MQA); latent attention keeps one vector and "
        "has no factor 2.",
        "No scales are stored beside quantized numbers.",
    ),
    passages=(
        Passage(
            "001",
            "Two phases, two bottlenecks, on the KV cache",
            "Keys and values of each token are kept, and the cache is a major consumer of memory.",
        ),
    ),
    cites=("shazeer-2019", "ainslie-2023", "kwon-2023"),
    claim="cache-is-a-major-consumer",
)
def kv_bytes_per_token(
    n_layers: float, n_kv_heads: float, head_dim: float, bytes_per_element: float
) -> float:
    """kappa = 2 L H_kv D_h b_kv, byte per token. Source: Shazeer 2019; Ainslie et al. 2023."""
    return 2 * n_layers * n_kv_heads * head_dim * bytes_per_element


@equation(
    "experts-touched",
    title="Experts touched in a step",
    left="experts_read",
    expression="n_experts*(1 - (1 - n_active/n_experts)**tokens)",
    example={"n_experts": 256, "n_active": 8, "tokens": 32},
    example_from="256 experts, 8 for each token, 32 tokens in the step",
    reading="1 - k/E is the chance that one token passes an expert by, its T-th power that all "
    "do. What is left is the chance that at least one needs it, and its weights are then read "
    "whole. So a batch soon reads most experts, while each token still computes with k.",
    assumptions=(
        "Each token is sent to k different experts, all equally likely, independently of the "
        "other tokens. Real routers are neither: this is what they are compared with.",
    ),
    cites=("shazeer-2017",),
)
def experts_touched(n_experts: float, n_active: float, tokens: float) -> float:
    """E (1 - (1 - k/E)^T), written so that one token gives k exactly and none gives 0."""
    if not tokens:
        return 0.0
    idle = n_experts - n_active
    return n_experts - idle * (idle / n_experts) ** (tokens - 1)
