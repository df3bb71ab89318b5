"""Prints what Google Colab preinstalls of what the tests need, as constraints; torch as locked.

Colab's own list is in tests/data, with its source and date.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FREEZE = ROOT / "tests" / "data" / "colab_pip_freeze_gpu_2026-08-19.txt"

# Asked for in other versions by the tools that make and test the book, none of which runs on Colab.
OTHERS = {
    "alabaster", "docutils", "markdown-it-py", "mdit-py-plugins", "sphinx",  # Jupyter Book 1
    "click", "ipykernel", "setuptools", "wheel",
}  # fmt: skip
BESIDE = ("pandas",)  # preinstalled, and not needed by the tests: it is there all the same


def pins(text: str) -> dict[str, str]:
    """{normalized name: version} of every `name==version` line."""
    found = re.findall(r"^([\w.-]+)==([^\s;#]+)$", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def constraints(lock: str, freeze: str) -> list[str]:
    """`name==version` for everything locked that Colab preinstalls, in order; torch as locked."""
    locked, there = pins(lock), pins(freeze)
    kept = [name for name in (*locked, *BESIDE) if name in there and name not in OTHERS]
    return [f"{name}=={locked[name] if name == 'torch' else there[name]}" for name in kept]


if __name__ == "__main__":
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    print("\n".join(constraints(lock, FREEZE.read_text(encoding="utf-8"))))
