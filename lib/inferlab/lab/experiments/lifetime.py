"""Serving against training, from what was published. `plant` as in `phases`.

Published inputs, none of ours:
- DeepSeek-V3 was trained in 2.788e6 H800-hours (its technical report, arXiv 2412.19437, table 1).
- On 27 and 28 February 2025 its V3 and R1 services took 226.75 nodes of 8 H800 on average
  (DeepSeek, open-infra-index, "Day 6: one more thing").
- OpenAI spent about 5e9 dollars on compute for research and training in 2024, and about 2e9 on
  compute for inference (Epoch AI, "Most of OpenAI's 2024 compute went to experiments", October
  2025).
"""

from __future__ import annotations

TRAINING_H800_HOURS = 2.788e6
SERVING_NODES, GPUS_PER_NODE = 226.75, 8
OPENAI_2024 = {"research and training": 5e9, "inference": 2e9}
HOURS_PER_YEAR = 365 * 24


def serving_against_training(plant: str = "") -> dict[str, float]:
    """Cost of serving ÷ cost of training: in H800-hours (a year like that day), and in dollars.

    plant  "swapped" exchanges the two; "one-gpu" takes a node for one GPU
    """
    each = 1 if plant == "one-gpu" else GPUS_PER_NODE
    serving = SERVING_NODES * each * HOURS_PER_YEAR
    found = {
        "a-year-of-deepseek": serving / TRAINING_H800_HOURS,
        "openai-2024": OPENAI_2024["inference"] / OPENAI_2024["research and training"],
    }
    return {k: 1 / x for k, x in found.items()} if plant == "swapped" else found
