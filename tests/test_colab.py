"""Google Colab, rehearsed: nothing preinstalled changes, every notebook can run there by itself.

What Colab preinstalls is in tests/data, with its source and date. That every notebook really runs,
from an empty folder with the built package, is tests/book/test_chapters.py's.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import site
import subprocess
import tomllib
import venv
import zipfile
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from inferlab import answer, here, table, tokens
from inferlab.book import bootstrap

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FREEZE = (ROOT / "tests" / "data" / "colab_pip_freeze_gpu_2026-08-19.txt").read_text("utf-8")
COLAB_PYTHON = "3.13"
NOTEBOOKS = bootstrap.notebooks(ROOT)
NAMES = [n.relative_to(ROOT / "chapters").as_posix() for n in NOTEBOOKS]

# What notebooks take from IPython, all of it in 7.34, which Colab has (`make test-colab` looks)
IPYTHON = {"IPython.display": {"HTML", "JSON", "SVG", "Image", "Markdown", "Math", "display"}}


def spec(name):
    """A module of .ci, loaded."""
    found = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


PREINSTALLED = {canonicalize_name(k): v for k, v in spec("colab").pins(FREEZE).items()}


def on_colab(name):
    return PREINSTALLED.get(canonicalize_name(name))


def wanting(requirements):
    return [[r.name for r in part] for part in here.wanting(requirements, on_colab)]


def cells(file):
    node = nbformat.read(file, as_version=4)
    return [c for c in node.cells if c.cell_type == "code"]


def problems(source):
    """What in a code cell would not run on Colab, or would not find its data there."""
    try:
        tree = ast.parse(source, feature_version=(3, 11))
        compile(source, "cell", "exec")
    except SyntaxError as error:  # magics and top-level await too
        return [f"no plain Python: {error.msg}"]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "IPython":
            known = IPYTHON.get(node.module, set())
            found += [f"{node.module}.{a.name}" for a in node.names if a.name not in known]
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] == "IPython"]
        if isinstance(node, ast.Name) and node.id == "get_ipython":
            found.append("get_ipython")
        if isinstance(node, ast.Call):
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            on = getattr(getattr(node.func, "value", None), "id", "")
            reads = called in ("open", "Path", "loadtxt", "genfromtxt", "read_text", "read_bytes")
            if (reads or called.startswith("read_")) and on != "data":
                constant = any(isinstance(a, ast.Constant) for a in node.args)
                found += [f"{called}: data come through inferlab.data"] * constant
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            path = re.fullmatch(r"(\.{1,2}/\S*|data/\S+|\S+\.(csv|json|ya?ml|parquet))", node.value)
            if path and "/" in node.value:
                found.append(f"a path: {node.value}")
    return found


def test_nothing_preinstalled_is_changed_and_one_package_is_absent():
    absent, others = wanting(PROJECT["dependencies"])
    assert others == []
    assert absent == ["gguf"]
    assert len(PROJECT["dependencies"]) > 10
    assert on_colab("torch") == "2.11.0+cu128"
    assert on_colab("Jinja2") == on_colab("jinja2") == "3.1.6"


def test_what_is_absent_needs_nothing_that_is_absent():
    """So pip's --no-deps leaves nothing out."""
    assert wanting(importlib.metadata.requires("gguf")) == [[], []]


def test_a_requirement_that_would_change_something_is_found():
    assert wanting(["numpy>=2.2", "torch>=2.12", "papermill>=2"]) == [
        ["papermill"],
        ["numpy", "torch"],
    ]


def test_the_python_of_colab_is_one_of_ours():
    assert SpecifierSet(PROJECT["requires-python"]).contains(COLAB_PYTHON)
    assert "cp313" in FREEZE


def test_the_fast_tests_run_once_with_what_colab_has():
    colab = spec("colab")
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    found = dict(line.split("==") for line in colab.constraints(lock, FREEZE))
    for name in ("numpy", "pandas", "matplotlib", "ipython", "transformers", "huggingface-hub"):
        assert found[name] == PREINSTALLED[name]
    assert found["torch"] == colab.pins(lock)["torch"] != PREINSTALLED["torch"]
    assert not colab.OTHERS & set(found)
    assert {r.partition(">")[0] for r in PROJECT["dependencies"]}.isdisjoint(colab.OTHERS)
    assert re.search(r"^make .*\btest-colab\b", (ROOT / ".ci" / "run").read_text("utf-8"), re.M)


def test_ipython_of_colab_has_what_the_notebooks_take():
    """Run by `make test-colab` with IPython 7.34."""
    for module, names in IPYTHON.items():
        there = importlib.import_module(module)
        assert not [name for name in names if not hasattr(there, name)]


def test_what_notebooks_show_is_shown_by_that_ipython():
    """Run by `make test-colab` with IPython 7.34: each kind of view as HTML, and as text."""
    from IPython.core.formatters import DisplayFormatter

    views = (table(["a"], [[1]], "One number."), tokens(["one", " token"]), answer("Yes."))
    for view in views:
        shown, _ = DisplayFormatter().format(view)
        assert {"text/html", "text/plain"} <= shown.keys()


@pytest.mark.parametrize("file", NOTEBOOKS, ids=NAMES)
def test_syntax_display_and_data(file):
    found = {c.id: problems(c.source) for c in cells(file)}
    assert not {cell: what for cell, what in found.items() if what}
    assert nbformat.read(file, as_version=4).nbformat == 4


@pytest.mark.parametrize(
    "source",
    [
        "%timeit 1", "!ls", "await f()", "x = 1 +", "get_ipython().system('ls')",
        "from IPython.display import clear", "import IPython", "open('x.csv')",
        "pd.read_csv('models.csv')", "Path('../data/x')", "f('../data/models.csv')",
        "np.loadtxt('x')", "f('data/prices.csv')",
    ],
)  # fmt: skip
def test_what_would_not_run_there_is_found(source):
    assert problems(source)


@pytest.mark.parametrize(
    "source",
    ["data.read_csv('models.csv')", "from IPython.display import Markdown", "print('a/b')"],
)
def test_what_runs_there_is_let_pass(source):
    assert not problems(source)


WITHOUT_A_MACHINE = {
    "04_math/published_numbers": "none",  # times that others published
    "07_sources/claims": "cpu",  # counts, the same on any device
    "07_sources/mistakes_counting": "cpu",  # counts, and what the CPU's attention kernel computes
}
"""Pages on which the device is not the reader's to choose, and what it is instead."""


@pytest.mark.parametrize("file", NOTEBOOKS, ids=NAMES)
def test_the_machine_chooses_unless_the_reader_does(file):
    """device and scale are parameters, and model where one is loaded: each "auto"."""
    found = {}
    for cell in cells(file):
        if "parameters" in cell.metadata.get("tags", ()):
            for statement in ast.parse(cell.source).body:
                if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
                    found[statement.targets[0].id] = statement.value.value
    name = file.relative_to(ROOT / "chapters").with_suffix("").as_posix()
    assert "scale" in found
    assert found.get("device", "none") == WITHOUT_A_MACHINE.get(name, "auto")
    for name in ("model", "scale"):
        assert found.get(name, "auto") == "auto", name


def test_the_first_cell_is_the_same_everywhere():
    found = {}
    for file, name in zip(NOTEBOOKS, NAMES, strict=True):
        node = nbformat.read(file, as_version=4)
        cell = node.cells[1]
        assert node.cells[0].source.startswith("# "), name
        assert (cell.id, cell.metadata) == ("bootstrap", {"tags": bootstrap.TAGS}), name
        tagged = [c for c in node.cells if "bootstrap" in c.metadata.get("tags", ())]
        assert len(tagged) == 1, name
        found.setdefault(cell.source, []).append(name)
    assert len(found) == 1, f"unlike each other: {list(found.values())}; run inferlab bootstrap"
    (text,) = found
    address = bootstrap.address_in(text)
    assert text == bootstrap.source(address, PROJECT["version"]), "run inferlab bootstrap"
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    remote = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    if "github.com" in remote:
        assert address, "the notebooks name no repository: run inferlab bootstrap and commit"


def test_the_cell_is_short():
    lines = bootstrap.source("https://github.com/some-owner/a-repository", "10.20.30").splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 72


def test_the_cell_goes_after_the_title_once_and_is_kept_up_to_date(tmp_path):
    folder = tmp_path / "chapters" / "01"
    folder.mkdir(parents=True)
    v4 = nbformat.v4
    plain = v4.new_notebook(cells=[v4.new_markdown_cell("# A"), v4.new_code_cell("1")])
    nbformat.write(plain, folder / "a.ipynb")
    (folder / ".ipynb_checkpoints").mkdir()
    nbformat.write(plain, folder / ".ipynb_checkpoints" / "a.ipynb")
    assert [str(p) for p in bootstrap.sync(tmp_path, "", "1.0")] == ["chapters/01/a.ipynb"]
    assert bootstrap.sync(tmp_path, "", "1.0") == []
    assert len(bootstrap.sync(tmp_path, "https://github.com/o/r", "1.1")) == 1
    node = nbformat.read(folder / "a.ipynb", as_version=4)
    assert [c.source for c in node.cells] == [
        "# A", bootstrap.source("https://github.com/o/r", "1.1"), "1",
    ]  # fmt: skip
    assert bootstrap.address_in(node.cells[1].source) == "https://github.com/o/r"


def run_cell(python, text, **environment):
    return subprocess.run(
        [str(python), "-c", text],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=python.parent,
    )


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A Python that has every package of this one, but neither inferlab nor gguf: like Colab."""
    folder = tmp_path_factory.mktemp("bare")
    mirror = folder / "preinstalled"
    mirror.mkdir()
    for place in map(Path, site.getsitepackages()):
        for entry in place.iterdir() if place.is_dir() else ():
            theirs = entry.name.lower().lstrip("_").startswith(("inferlab", "gguf", "editable"))
            if not theirs and entry.suffix != ".pth":
                (mirror / entry.name).symlink_to(entry)
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "preinstalled.pth").write_text(str(mirror))
    return folder / "venv" / "bin" / "python"


@pytest.mark.slow
def test_without_an_address_the_cell_says_what_to_do(bare):
    done = run_cell(bare, bootstrap.source("", PROJECT["version"]))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "RuntimeError: Set book to git+https://github.com/OWNER/NAME"
    )


@pytest.mark.slow
def test_a_release_that_is_not_there_is_heard(bare, tmp_path):
    done = run_cell(bare, bootstrap.source(f"file://{tmp_path}/none", PROJECT["version"]))
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr
    assert f"{tmp_path}/none" in done.stderr


@pytest.mark.slow
def test_the_cell_installs_the_release_and_what_is_missing_and_nothing_else(bare, tmp_path):
    """From a repository with the tag, as it would from GitHub; other wheels are made here."""
    repository, wheels = tmp_path / "repository", tmp_path / "wheels"
    repository.mkdir()
    for part in ("lib", "data"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, repository / part, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, repository)
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    tag = f"v{PROJECT['version']}"
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["tag", tag]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    wheels.mkdir()
    for name in ("gguf", *build_tools()):
        repack(name, wheels)
    alone = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    before = frozen(bare)
    text = bootstrap.source(f"file://{repository}", PROJECT["version"])
    done = run_cell(bare, text, **alone)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"What Is Inference? {PROJECT['version']}, Python ")
    after = frozen(bare)
    assert {name for name in after if before.get(name) != after[name]} == {"inferlab", "gguf"}
    assert before.items() <= after.items()
    again = run_cell(bare, text, PIP_NO_INDEX="1", PATH="")
    assert (again.returncode, again.stdout) == (0, done.stdout), again.stderr


def frozen(python):
    """{name: version} of every distribution that this Python finds."""
    code = (
        "import json; from importlib.metadata import distributions as d\n"
        "print(json.dumps({x.metadata['Name'].lower(): x.version for x in d()}))"
    )
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def build_tools():
    """What pip installs for a while to build the library, and what that requires."""
    queue, found = ["hatchling"], []
    while queue:
        found.append(queue.pop())
        for requirement in map(Requirement, importlib.metadata.requires(found[-1]) or ()):
            needed = not requirement.marker or requirement.marker.evaluate({"extra": ""})
            if needed and requirement.name not in (*found, *queue):
                queue.append(requirement.name)
    return found


def repack(name, folder):
    """A wheel made of an installed pure-Python distribution."""
    found = importlib.metadata.distribution(name)
    wheel = folder / f"{name.replace('-', '_')}-{found.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in found.files:
            inside = file.parts[0] not in ("..", "bin") and "__pycache__" not in file.parts
            if inside and file.name not in ("INSTALLER", "REQUESTED", "direct_url.json"):
                archive.write(file.locate(), str(file))
    return wheel
