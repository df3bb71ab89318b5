"""One accessor for the data files (CSV, YAML, JSON) that the theory and the pages read.

A wheel carries them as package data in `inferlab/_data`; in an editable checkout they lie in
`data/` at the root of the repository, where plain `importlib.resources` would not find them.
"""

from __future__ import annotations

import csv
import hashlib
import os
import tempfile
from difflib import get_close_matches
from pathlib import Path

__all__ = ["cache_dir", "folder", "names", "path", "read_csv", "sha256", "write_atomically"]

_PACKAGE = Path(__file__).resolve().parent


def folder() -> Path:
    """The folder of the data files: `inferlab/_data` of a wheel, else `data/` of the checkout.

    Raises FileNotFoundError when neither is there, which means that the installation is broken.
    """
    packaged, checkout = _PACKAGE / "_data", _PACKAGE.parent.parent / "data"
    if packaged.is_dir():
        return packaged
    if checkout.is_dir() and (checkout.parent / "pyproject.toml").is_file():
        return checkout
    raise FileNotFoundError(
        f"the data files of inferlab are neither in {packaged} nor in {checkout}: "
        "install the package again (pip install --force-reinstall --no-deps inferlab)"
    )


def names() -> tuple[str, ...]:
    """Every data file, as the name that `path` takes, in alphabetical order."""
    root = folder()
    found = (file for file in root.rglob("*") if file.is_file() and not file.name.startswith("."))
    return tuple(sorted(file.relative_to(root).as_posix() for file in found))


def path(name: str) -> Path:
    """The data file `name` ("models.csv", "measurements/x.json") as a path that can be opened.

    Raises FileNotFoundError, naming the near ones, when there is no such file.
    """
    root = folder()
    file = (root / name).resolve()
    if file.is_relative_to(root.resolve()) and file.is_file():
        return file
    near = get_close_matches(name, names(), n=3) or list(names()[:5])
    raise FileNotFoundError(
        f"there is no data file {name!r}: near are {', '.join(near) or 'none at all'}; "
        "inferlab.data.names() lists every one"
    )


def read_csv(name: str) -> list[dict[str, str]]:
    """The rows of a CSV data file with a header line, each as {column: text}, blank lines left out.

    Raises ValueError, naming the line, when a row has more or fewer cells than the header.
    """
    with path(name).open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        rows = []
        for row in reader:
            if None in row or None in row.values():
                raise ValueError(
                    f"{name}, line {reader.line_num}: the header has {len(reader.fieldnames or ())}"
                    " columns and this row another number of cells; quote cells that hold commas"
                )
            rows.append(row)
    return rows


def cache_dir() -> Path:
    """The folder, made if need be, in which what is fetched is kept once for all environments.

    It is the user's cache folder as the operating system names it; the environment variable
    INFERLAB_CACHE overrides it.
    """
    override = os.environ.get("INFERLAB_CACHE")
    if override:
        place = Path(override).expanduser()
    else:
        from platformdirs import user_cache_path

        place = user_cache_path("inferlab", appauthor=False)
    place.mkdir(parents=True, exist_ok=True)
    return place


def sha256(file: Path) -> str:
    """The SHA-256 of a file's bytes, as 64 hexadecimal digits."""
    with Path(file).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomically(target: Path, text: str) -> None:
    """Write `text` so that `target` holds either what it held before or all of the new text."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
