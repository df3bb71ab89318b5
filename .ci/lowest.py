"""Prints the lowest versions that pyproject.toml allows, as constraints; torch stays as locked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def constraints(project: dict, lock: str) -> list[str]:
    """`name==lowest` for every direct dependency, in order; torch as the lock file pins it."""
    asked = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        asked += extra
    pins = {}
    for requirement in asked:
        match = re.fullmatch(r"([\w.-]+)(?:>=|==)([\w.]+)(?:,.*)?", requirement)
        if match:
            pins[match[1]] = match[2]
        elif not requirement.startswith("inferlab["):
            raise SystemExit(f"{requirement!r} in pyproject.toml has no lowest version")
    pins["torch"] = re.search(r"^torch==(\S+)", lock, re.MULTILINE)[1]
    return [f"{name}=={version}" for name, version in pins.items()]


if __name__ == "__main__":
    with (ROOT / "pyproject.toml").open("rb") as stream:
        project = tomllib.load(stream)["project"]
    print("\n".join(constraints(project, (ROOT / "requirements.lock").read_text())))
