"""The publications that the equations and symbols cite, and what each of them shows."""

from __future__ import annotations

from inferlab.theory.notation.terms import Citation

_ALL = (
    Citation(
        "bengio-2003",
        "Bengio, Ducharme, Vincent, Jauvin: A Neural Probabilistic Language Model. Journal of "
        "Machine Learning Research 3, 2003",
        "https://www.jmlr.org/papers/v3/bengio03a.html",
        "the probability of a text as a product of the probabilities of each next word",
    ),
    Citation(
        "vaswani-2017",
        "Vaswani and others: Attention Is All You Need, 2017, section 3.2.1",
        "https://arxiv.org/abs/1706.03762",
        "scaled dot-product attention, and why the scores are divided by a square root",
    ),
    Citation(
        "hinton-2015",
        "Hinton, Vinyals, Dean: Distilling the Knowledge in a Neural Network, 2015, section 2",
        "https://arxiv.org/abs/1503.02531",
        "softmax with a temperature",
    ),
    Citation(
        "kaplan-2020",
        "Kaplan and others: Scaling Laws for Neural Language Models, 2020, section 2.1",
        "https://arxiv.org/abs/2001.08361",
        "2 N FLOP per token forward, with attention apart, and 6 N per token of training",
    ),
    Citation(
        "hoffmann-2022",
        "Hoffmann and others: Training Compute-Optimal Large Language Models, 2022",
        "https://arxiv.org/abs/2203.15556",
        "training compute as 6 N D",
    ),
    Citation(
        "sardana-2023",
        "Sardana, Portes, Doubov, Frankle: Beyond Chinchilla-Optimal: Accounting for Inference in "
        "Language Model Scaling Laws, 2023",
        "https://arxiv.org/abs/2401.00448",
        "6 N D of training beside 2 N per token served, over the life of a model",
    ),
    Citation(
        "williams-2009",
        "Williams, Waterman, Patterson: Roofline: An Insightful Visual Performance Model for "
        "Multicore Architectures. Communications of the ACM 52(4), 2009",
        "https://doi.org/10.1145/1498765.1498785",
        "operational intensity, the ridge point, and time as the slower of computing and moving",
    ),
    Citation(
        "chowdhery-2022",
        "Chowdhery and others: PaLM: Scaling Language Modeling with Pathways, 2022, appendix B",
        "https://arxiv.org/abs/2204.02311",
        "model FLOP utilization",
    ),
    Citation(
        "databricks-2023",
        "Databricks: LLM Inference Performance Engineering: Best Practices, 2023",
        "https://www.databricks.com/blog/llm-inference-performance-engineering-best-practices",
        "model bandwidth utilization, TTFT and TPOT",
    ),
    Citation(
        "scaling-book",
        "Austin and others: How to Scale Your Model, 2025, parts 1 and 7",
        "https://jax-ml.github.io/scaling-book/",
        "critical batch, and a decode step as time of weights plus time of KV cache",
    ),
    Citation(
        "pope-2022",
        "Pope and others: Efficiently Scaling Transformer Inference, 2022",
        "https://arxiv.org/abs/2211.05102",
        "memory time and compute time of prefill and decode; the KV cache at large batch",
    ),
    Citation(
        "shazeer-2019",
        "Shazeer: Fast Transformer Decoding: One Write-Head is All You Need, 2019",
        "https://arxiv.org/abs/1911.02150",
        "decoding is bound by the loading of keys and values; sharing them between heads",
    ),
    Citation(
        "ainslie-2023",
        "Ainslie and others: GQA: Training Generalized Multi-Query Transformer Models, 2023",
        "https://arxiv.org/abs/2305.13245",
        "keys and values shared by groups of query heads",
    ),
    Citation(
        "kwon-2023",
        "Kwon and others: Efficient Memory Management for Large Language Model Serving with "
        "PagedAttention, 2023",
        "https://arxiv.org/abs/2309.06180",
        "the size of the KV cache per token, and what it costs to waste it",
    ),
    Citation(
        "shazeer-2017",
        "Shazeer and others: Outrageously Large Neural Networks: The Sparsely-Gated "
        "Mixture-of-Experts Layer, 2017",
        "https://arxiv.org/abs/1701.06538",
        "a router that sends each token to k of E experts",
    ),
    Citation(
        "leviathan-2022",
        "Leviathan, Kalman, Matias: Fast Inference from Transformers via Speculative Decoding, "
        "2022, section 3",
        "https://arxiv.org/abs/2211.17192",
        "the expected number of tokens of a round of draft and verify",
    ),
    Citation(
        "little-1961",
        "Little: A Proof for the Queuing Formula: L = λW. Operations Research 9(3), 1961, 383-387",
        "https://doi.org/10.1287/opre.9.3.383",
        "mean number in a system = rate of arrival times mean stay, for any order of service",
    ),
    Citation(
        "zhong-2024",
        "Zhong and others: DistServe: Disaggregating Prefill and Decoding for Goodput-optimized "
        "Large Language Model Serving, 2024",
        "https://arxiv.org/abs/2401.09670",
        "goodput as the highest rate of requests per GPU at which a set share of them keeps the "
        "limits on TTFT and TPOT",
    ),
    Citation(
        "deepseek-2025",
        "DeepSeek: DeepSeek-V3/R1 Inference System Overview, 2025-03-01",
        "https://github.com/deepseek-ai/open-infra-index/blob/main/202502OpenSourceWeek/"
        "day_6_one_more_thing_deepseekV3R1_inference_system_overview.md",
        "rent and list-price revenue of one day: 87,072 and 562,027 dollars",
    ),
)

CITATIONS = {c.key: c for c in _ALL}
