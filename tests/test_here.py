"""The first cell's function: what is completed, what is left alone, what is said."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from inferlab import here
from inferlab.engine import device as devices
from inferlab.engine.device import Facts
from inferlab.lab import host

INSTALLED = {"numpy": "2.1.3", "torch": "2.11.0+cu128", "rc": "3.0rc1"}


@pytest.mark.parametrize(
    ("requirement", "absent", "others"),
    [
        ("numpy>=1.26", [], []),
        ("numpy>=2.2", [], ["numpy"]),
        ("torch>=2.6", [], []),
        ("rc>=2", [], []),
        ("gguf>=0.17", ["gguf"], []),
        ("papermill>=2; extra == 'book'", [], []),
        ("colorama; sys_platform == 'win32'", [], []),
        ("tomli; python_version < '3.11'", [], []),
        ("backport; python_version >= '3.11'", ["backport"], []),
    ],
)
def test_what_is_wanting(requirement, absent, others):
    found = here.wanting([requirement], INSTALLED.get)
    assert [[r.name for r in part] for part in found] == [absent, others]


def test_only_the_absent_is_installed_and_then_what_that_needs(monkeypatch, capsys):
    requires = {
        "inferlab": ["numpy>=2.2", "gguf>=0.17", "jupyter-book; extra == 'book'"],
        "gguf": ["numpy>=1.17", "deep"],
        "deep": None,
    }
    there = {"numpy": "2.1.3", "other": "1"}
    calls = []

    def pip(packages):
        calls.append(list(packages))
        there.update({name.partition(">")[0]: "1" for name in packages})

    monkeypatch.setattr(here.metadata, "requires", requires.__getitem__)
    monkeypatch.setattr(here, "_version", there.get)
    assert here.complete(pip) == ["gguf", "deep"]
    assert calls == [["gguf>=0.17"], ["deep"]]
    said = capsys.readouterr().out
    assert said == "Left as it is: numpy 2.1.3; the book asks for numpy>=2.2.\n"
    assert here.complete(pip) == []


def test_pip_that_fails_is_heard(monkeypatch):
    def run(command, **_):
        assert command[:4] == [sys.executable, "-m", "pip", "install"]
        assert "--no-deps" in command
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no such thing")

    monkeypatch.setattr(here.subprocess, "run", run)
    with pytest.raises(RuntimeError, match=r"pip could not install gguf>=0\.17:\nERROR: no such"):
        here._pip(["gguf>=0.17"])


def test_one_line_says_what_is_here(capsys):
    here.here()
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert said.startswith(f"What Is Inference? {importlib.metadata.version('inferlab')}, Python ")


@pytest.mark.parametrize(
    ("colab", "words"),
    [(True, "Runtime → Change runtime type"), (False, "No GPU is needed: everything runs.")],
)
def test_without_a_gpu(monkeypatch, colab, words):
    monkeypatch.setattr(here, "on_colab", lambda: colab)
    monkeypatch.setattr(devices, "facts", lambda: Facts(cpu_bf16=True))
    line = here.describe()
    assert words in line
    assert "CPU (cpu) with" in line
    assert "everything" in line
    assert "computing in bf16." in line


def test_with_a_gpu(monkeypatch):
    gpu = {
        "accelerator": "Tesla T4",
        "accelerator_memory": 15_835_660_288,
        "memory": 13_600_000_000,
    }
    monkeypatch.setattr(host, "machine", lambda device: gpu)
    have = Facts(gpus=(devices.Gpu("Tesla T4", (7, 5)),))
    monkeypatch.setattr(devices, "facts", lambda: have)
    assert here.describe().endswith("Tesla T4 (cuda) with 15.8 GB, computing in fp16.")


def test_nothing_is_installed_where_the_library_is_not_new(monkeypatch, capsys):
    def never(*_, **__):
        raise AssertionError("pip was called")

    monkeypatch.setattr(here, "complete", never)
    here.here()
    with pytest.raises(AssertionError):
        here.here(new=True)


def test_colab_is_told_by_its_package(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "google", raising=False)
    assert not here.on_colab()
    (tmp_path / "google" / "colab").mkdir(parents=True)
    (tmp_path / "google" / "colab" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert here.on_colab()
    monkeypatch.delitem(sys.modules, "google", raising=False)


def test_the_module_loads_without_what_may_be_missing():
    """It is imported before the installation is complete."""
    code = (
        "import sys, inferlab.here\n"
        "heavy = {'torch', 'numpy', 'gguf', 'psutil', 'platformdirs', 'jinja2', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
