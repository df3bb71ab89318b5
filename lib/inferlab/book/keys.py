"""The keys that decide what must run again: of a notebook's source, and of its execution."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from nbformat import NotebookNode

import inferlab
from inferlab import data
from inferlab.book.pages import digest

__all__ = [
    "execution_key", "library_files", "machine_key", "machine_name", "model_key", "source_key",
]  # fmt: skip

# What a result depends on; book/ is left out: it arranges results and makes none. So are the words
# of theory/notation.
LIBRARY = ("theory", "engine", "lab", "data.py", "here.py", "__init__.py")
WORDS = Path("theory", "notation")


def source_key(node: NotebookNode) -> str:
    """Digest of what a reader wrote in a notebook: the kind, text and tags of each cell."""
    cells = [[c.cell_type, c.source, c.metadata.get("tags", [])] for c in node.cells]
    return digest([json.dumps(cells)])


def execution_key(node: NotebookNode, parameters: dict[str, str], root: Path) -> str:
    """Digest of everything that the outputs of a notebook depend on."""
    lock = root / "requirements.lock"
    return digest(
        [
            source_key(node),
            json.dumps(parameters, sort_keys=True),
            *_named(library_files(), Path(inferlab.__file__).parent),
            *_named((data.path(name) for name in data.names()), data.folder()),
            lock if lock.exists() else b"",
            model_key(parameters.get("model", "auto")),
            machine_key(),
        ]
    )


def library_files() -> Iterator[Path]:
    """The source files of the library that a result depends on."""
    package = Path(inferlab.__file__).parent
    for part in LIBRARY:
        place = package / part
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        yield from (file for file in files if package / WORDS not in file.parents)


def model_key(model: str) -> str:
    """What identifies the model's weights: for a local file or folder, name, size and time.

    A name needs no more: the file behind it is pinned by its SHA-256 in the engine's source.
    """
    place = Path(model).expanduser()
    if not place.exists():
        return model
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    stats = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.is_file()]
    return json.dumps(stats)


def machine_key() -> str:
    """What identifies the machine and the software that measured: hardware, versions, threads."""
    from inferlab.engine import device
    from inferlab.lab import host

    versions = [_version(name) for name in ("numpy", "matplotlib", "tokenizers")]
    return json.dumps([host.machine(), repr(device.facts()), versions], sort_keys=True)


def machine_name() -> str:
    """The machine in a few words: its accelerator, else its processor and the threads used."""
    from inferlab.engine import device
    from inferlab.lab import host

    facts = host.machine(str(device.pick_device()))
    return str(facts.get("accelerator") or f"{facts['cpu']}, {facts['threads']} threads")


def _named(files: Iterator[Path], base: Path) -> Iterator[bytes | str | Path]:
    """Each file as its name relative to `base`, then its contents."""
    for file in files:
        yield file.relative_to(base).as_posix()
        yield file


def _version(name: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
