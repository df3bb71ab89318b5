"""Notebooks executed for real: alone, by this Python, once, and honestly when they fail."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest

from inferlab import data
from inferlab.book import keys, run


def outputs(node):
    return "".join(o.get("text", "") for c in node.cells for o in c.get("outputs", []))


def test_alone_in_an_empty_folder_by_this_python(book, console, tmp_path, monkeypatch):
    """Even where the user's own python3 kernel is another program, and a start-up file is there."""
    broken = tmp_path / "jupyter" / "kernels" / "python3"
    broken.mkdir(parents=True)
    spec = {"argv": ["false"], "display_name": "Python 3", "language": "python"}
    (broken / "kernel.json").write_text(json.dumps(spec))
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("leaked = True")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    source = (
        "import os, sys\n"
        "print(os.listdir('.'), os.getcwd() == os.path.realpath(os.getcwd()), scale, other)\n"
        "print(sys.executable); print(os.getcwd()); print('leaked' in globals())\n"
        "open('left.txt', 'w').close()"
    )
    book.notebook("a.ipynb", ("parameters", "scale = 'auto'\nother = 1"), ("code", source))
    parameters = {"scale": "ci", "device": "cpu"}
    (result,) = run.run(book.root, book.stage, (), parameters, console=console)
    assert result.state == "executed", console.file.getvalue()
    node = book.staged("a.ipynb")
    said = outputs(node).splitlines()
    assert said == ["[] True ci 1", f"(python)/bin/{Path(sys.executable).name}", ".", "False"]
    assert os.environ["JUPYTER_PATH"] == str(tmp_path / "jupyter")
    assert not list(book.root.rglob("left.txt"))
    assert node.metadata["inferlab"]["parameters"] == {"scale": "ci"}
    text = (book.stage / "a.ipynb").read_text()
    assert not [word for word in ("papermill", "iopub", str(tmp_path), sys.prefix) if word in text]
    injected = [c for c in node.cells if "injected-parameters" in c.metadata.get("tags", ())]
    assert [c.metadata["tags"] for c in injected] == [["injected-parameters", "remove-cell"]]
    assert node.metadata["kernelspec"]["name"] == "python3"


def test_unchanged_is_not_executed_again(book, console):
    book.notebook("a.ipynb", ("code", "import uuid; print(uuid.uuid4())"))
    states = [run.run(book.root, book.stage, console=console)[0].state]
    first = (book.stage / "a.ipynb").read_bytes()
    states.append(run.run(book.root, book.stage, console=console)[0].state)
    assert (book.stage / "a.ipynb").read_bytes() == first
    states.append(run.run(book.root, book.stage, force=True, console=console)[0].state)
    assert states == ["executed", "unchanged", "executed"]
    assert (book.stage / "a.ipynb").read_bytes() != first


def test_a_failure_is_shown_and_the_others_still_run(book, console):
    book.notebook("bad.ipynb", ("text", "# Bad"), ("code", "def f(n):\n    return 1 / n\n\nf(0)"))
    book.notebook("dead.ipynb", ("code", "import os; os._exit(3)"))
    book.notebook("good.ipynb", ("parameters", "scale = 'auto'"), ("code", "print(scale)"))
    results = run.run(book.root, book.stage, (), {"scale": "ci"}, console=console)
    assert [r.state for r in results] == ["failed", "failed", "executed"]
    said = console.file.getvalue()
    assert "bad.ipynb, cell 2 failed" in said
    assert "return 1 / n" in said
    assert "ZeroDivisionError: division by zero" in said
    assert "inferlab run bad.ipynb --scale ci" in said
    assert "DeadKernelError" in said
    assert outputs(book.staged("good.ipynb")) == "ci\n"
    assert [p.name for p in book.stage.rglob("*")] == ["good.ipynb"]


def test_a_cell_that_takes_too_long_fails(book, console):
    book.notebook("slow.ipynb", ("code", "import time; time.sleep(60)"))
    (result,) = run.run(book.root, book.stage, timeout=1, console=console)
    assert result.state == "failed"
    assert "Timeout" in console.file.getvalue()


def test_a_file_that_is_no_notebook_is_a_failure(book, console):
    book.page("a.ipynb", "this is not JSON")
    (result,) = run.run(book.root, book.stage, console=console)
    assert result.state == "failed"
    assert "cannot be read as a notebook" in console.file.getvalue()


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_and_a_rerun_resumes(book, console, tmp_path):
    book.notebook("a.ipynb", ("code", "print(1)"))
    flag = tmp_path / "started"
    wait = (
        f"import time, os\nopen({str(flag)!r}, 'w').close()\ntime.sleep(float(os.environ['NAP']))"
    )
    book.notebook("b.ipynb", ("code", wait))
    command = [sys.executable, "-m", "inferlab", "run", "--root", str(book.root)]
    environment = {**os.environ, "NAP": "60"}
    # a shell that starts the tests in the background makes them deaf to Ctrl-C; the child is not
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    while not flag.exists() and process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    kernels = psutil.Process(process.pid).children(recursive=True)
    assert kernels
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    assert "the same command resumes" in said
    assert not psutil.wait_procs(kernels, timeout=10)[1]
    assert [p.name for p in book.stage.rglob("*")] == ["a.ipynb"]
    os.environ["NAP"] = "0"
    try:
        results = run.run(book.root, book.stage, (), {"scale": "auto"}, console=console)
    finally:
        del os.environ["NAP"]
    assert [r.state for r in results] == ["unchanged", "executed"]


@pytest.fixture
def notebook(book):
    (book.root / "requirements.lock").write_text("torch==1")
    return nbformat.read(book.notebook("a.ipynb", ("code", "1 + 1")), as_version=4)


def test_the_key_is_the_same_for_the_same(book, notebook):
    keyed = [keys.execution_key(notebook, {"scale": "ci"}, book.root) for _ in range(2)]
    assert keyed[0] == keyed[1]


def cell(book, notebook, monkeypatch):
    notebook.cells[0].source = "1 + 2"


def tag(book, notebook, monkeypatch):
    notebook.cells[0].metadata["tags"] = ["hide-input"]


def lock(book, notebook, monkeypatch):
    (book.root / "requirements.lock").write_text("torch==2")


def library(book, notebook, monkeypatch):
    changed = book.root / "changed.py"
    changed.write_text("x = 1")
    monkeypatch.setattr(keys, "library_files", lambda: iter([changed]))
    monkeypatch.setattr(keys.inferlab, "__file__", str(book.root / "__init__.py"))


def data_file(book, notebook, monkeypatch):
    (book.root / "other.csv").write_text("a\n")
    monkeypatch.setattr(data, "folder", lambda: book.root)


def machine(book, notebook, monkeypatch):
    monkeypatch.setattr(keys, "machine_key", lambda: "another machine")


@pytest.mark.parametrize("change", [cell, tag, lock, library, data_file, machine])
def test_the_key_follows_every_cause(book, notebook, monkeypatch, change):
    before = keys.execution_key(notebook, {"scale": "ci"}, book.root)
    change(book, notebook, monkeypatch)
    assert keys.execution_key(notebook, {"scale": "ci"}, book.root) != before


def test_the_key_follows_parameters_and_model_files(book, notebook):
    weights = book.root / "w.gguf"
    weights.write_bytes(b"1")
    given = [{}, {"scale": "ci"}, {"scale": "laptop"}, {"model": str(weights)}]
    found = [keys.execution_key(notebook, parameters, book.root) for parameters in given]
    weights.write_bytes(b"12")
    found.append(keys.execution_key(notebook, given[-1], book.root))
    assert len(set(found)) == len(found)


def test_the_library_is_theory_engine_and_lab_and_not_book():
    parts = {file.relative_to(Path(keys.inferlab.__file__).parent).parts[0]
             for file in keys.library_files()}  # fmt: skip
    assert parts == {"theory", "engine", "lab", "data.py", "here.py", "__init__.py"}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("scale = 'auto'  # how much\ndevice: str = 'auto'", ("scale", "device")),
        ("a = b = 1\nprint(a)", ("a", "b")),
        ("", ()),
    ],
)
def test_parameter_names(book, source, names):
    file = book.notebook("a.ipynb", ("code", "hidden = 1"), ("parameters", source))
    assert run.parameter_names(nbformat.read(file, as_version=4)) == names
