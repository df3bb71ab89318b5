"""The first cell of every notebook: complete the installation where it is new, say what is here.

Only the standard library and `packaging` are imported until the installation is complete.
"""

from __future__ import annotations

import importlib
import importlib.util
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata

from packaging.requirements import Requirement

__all__ = ["complete", "describe", "here", "on_colab", "wanting"]

Version = Callable[[str], str | None]
"""The installed version of a distribution by its name, or None."""


def here(new: bool = False) -> None:
    """Print what this notebook runs on, in one line; where the library is new, complete it first.

    new  the library was just installed, without what it requires
    """
    if new:
        complete()
    print(describe())


def complete(pip: Callable[[Sequence[str]], None] | None = None) -> list[str]:
    """Install with --no-deps what `inferlab` requires and is not here at all; returns that.

    Nothing that is here is changed, whatever its version: where the library asks for another, a
    line says so. What was installed is completed in turn. Raises RuntimeError with pip's words.
    """
    install, new = pip or _pip, []
    queue = ["inferlab"]
    while queue:
        absent, others = wanting(metadata.requires(queue.pop()) or (), _version)
        for requirement in others:
            name = requirement.name
            print(f"Left as it is: {name} {_version(name)}; the book asks for {requirement}.")
        if absent:
            install([f"{requirement.name}{requirement.specifier}" for requirement in absent])
            importlib.invalidate_caches()
            queue += [requirement.name for requirement in absent]
            new += [requirement.name for requirement in absent]
    return new


def wanting(
    requirements: Iterable[str], installed: Version
) -> tuple[list[Requirement], list[Requirement]]:
    """(absent, others): the requirements of which no version is installed, and of which another is.

    Requirements of extras, and those whose marker excludes this Python or system, do not count.
    """
    absent, others = [], []
    for requirement in map(Requirement, requirements):
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = installed(requirement.name)
        if version is None:
            absent.append(requirement)
        elif not requirement.specifier.contains(version, prereleases=True):
            others.append(requirement)
    return absent, others


def describe() -> str:
    """Versions, device, memory and data type, and on a machine without a GPU what that means."""
    import torch

    from inferlab.engine import device as devices
    from inferlab.lab import host
    from inferlab.theory.units import si

    have = devices.facts()
    device = devices.pick_device("auto", have)
    dtype = devices.short_name(devices.pick_dtype("auto", device, have))
    facts = host.machine(str(device))
    line = (
        f"What Is Inference? {metadata.version('inferlab')}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, {facts.get('accelerator', 'CPU')} ({device}) with "
        f"{si(facts.get('accelerator_memory', facts['memory']), 'B')}, computing in {dtype}."
    )
    return line if device.type != "cpu" else f"{line} {_without_gpu(on_colab())}"


def on_colab() -> bool:
    """Whether this is Google Colab: only there is its package to be found."""
    return bool(importlib.util.find_spec("google") and importlib.util.find_spec("google.colab"))


def _without_gpu(colab: bool) -> str:
    if colab:
        return "No GPU: everything still runs; for one, Runtime → Change runtime type → T4 GPU."
    return "No GPU is needed: everything runs."


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _pip(packages: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"pip could not install {', '.join(packages)}:\n{done.stderr}")
