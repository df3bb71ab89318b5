"""What holds for the project as a whole: its imports, versions, files and two commands."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from inferlab.engine.load import DEFAULT
from inferlab.theory import shapes

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PYTHONS = ("3.11", "3.12", "3.13")


def committed():
    """Every file that git tracks or would track; skipped where this is no git checkout."""
    command = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    names = done.stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def requirements(*lists):
    return [Requirement(text) for texts in lists for text in texts if "inferlab[" not in text]


def pins():
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;#]+)$", LOCK, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def test_imports_follow_the_architecture():
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " 0 broken" in done.stdout


def test_every_theory_module_but_two_is_closed_to_the_engine():
    """A module that is added to theory must be added to the contract too."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (closed,) = [
        set(c["forbidden_modules"])
        for c in contracts["contracts"]
        if c.get("source_modules") == ["inferlab.engine"]
    ]
    theory = ROOT / "lib" / "inferlab" / "theory"
    modules = {f"inferlab.theory.{p.stem}" for p in theory.glob("*.py") if p.stem[0] != "_"}
    needed_by_shapes = {f"inferlab.theory.{n}" for n in ("gguf_config", "hf_config", "tensors")}
    opened = {"inferlab.theory.shapes", "inferlab.theory.units"}
    assert modules - closed - needed_by_shapes == opened


def test_theory_imports_nothing_heavy():
    code = (
        "import sys, pkgutil, importlib, inferlab.theory as t\n"
        "names = ['inferlab.theory.' + m.name for m in pkgutil.iter_modules(t.__path__)]\n"
        "assert len(names) > 5 and [importlib.import_module(n) for n in names]\n"
        "print([m for m in ('torch', 'pandas', 'pint', 'scipy', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_conda_has_the_ranges_of_the_package():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    *plain, through_pip = conda["dependencies"]
    assert f"python{PROJECT['requires-python']}" in plain
    assert through_pip["pip"] == PROJECT["dependencies"] + EXTRAS["book"] + EXTRAS["lab"]


def test_the_lock_pins_everything_and_within_the_ranges():
    locked = pins()
    assert locked["torch"] == "2.13.0"
    for wanted in requirements(PROJECT["dependencies"], *EXTRAS.values()):
        assert canonicalize_name(wanted.name) in locked, f"{wanted.name} is not locked"
        assert wanted.specifier.contains(locked[canonicalize_name(wanted.name)]), str(wanted)


def test_the_lock_has_pins_alone():
    """No hashes, no addresses, no local builds: the same file serves every platform."""
    for line in LOCK.splitlines():
        assert re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), line


def test_every_range_has_a_lowest_version():
    spec = importlib.util.spec_from_file_location("lowest", ROOT / ".ci" / "lowest.py")
    lowest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lowest)
    found = lowest.constraints(PROJECT, LOCK)
    wanted = {r.name for r in requirements(PROJECT["dependencies"], *EXTRAS.values())}
    assert {line.partition("==")[0] for line in found} == wanted
    assert "torch==2.13.0" in found
    with pytest.raises(SystemExit, match="no lowest version"):
        lowest.constraints({**PROJECT, "dependencies": ["rich"]}, LOCK)


def test_pythons_are_the_same_everywhere():
    assert PROJECT["requires-python"] == ">=3.11,<3.14"
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python ::" in c]
    assert tuple(named) == PYTHONS
    assert "Python 3.11, 3.12 or 3.13" in (ROOT / "README.md").read_text(encoding="utf-8")
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert 'python: ["3.11", "3.13"]' in workflow


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]


def test_commands_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    text = "".join((ROOT / name).read_text("utf-8") for name in ("README.md", "CONTRIBUTING.md"))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE))
    assert {"book", "test"} <= named <= targets
    from inferlab.__main__ import app

    known = {command.callback.__name__ for command in app.registered_commands}
    assert set(re.findall(r"(?:`|^|/)inferlab ([a-z]+)", text, re.M)) <= known


def test_every_listed_page_is_there():
    from inferlab.book.pages import pages

    assert pages(ROOT)


def test_links_in_the_texts_lead_somewhere():
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / target).exists(), f"{name} links to {target}"


def test_the_readme_says_it_in_the_first_screen():
    first = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:25]
    assert any(line.startswith("make book") for line in first)
    assert any(line.startswith("make test") for line in first)


def test_modules_can_be_read_in_one_go():
    folders = ("lib", "benchmarks", ".ci")
    files = [
        f for f in committed() if f.suffix == ".py" and f.relative_to(ROOT).parts[0] in folders
    ]
    assert len(files) > 20
    long = {}
    for file in files:
        lines = len(file.read_text(encoding="utf-8").splitlines())
        if lines > 300:
            long[file.relative_to(ROOT).as_posix()] = lines
    assert not long, "modules of more than 300 lines"


def test_no_outputs_in_git():
    for file in committed():
        if file.suffix != ".ipynb":
            continue
        for number, cell in enumerate(json.loads(file.read_text(encoding="utf-8"))["cells"], 1):
            if cell["cell_type"] == "code":
                assert not cell["outputs"], f"{file.name}, cell {number} has outputs"
                assert cell["execution_count"] is None, f"{file.name}, cell {number} was executed"
                assert "execution" not in cell["metadata"], f"{file.name}, cell {number}"


# Folders in which machines keep their users, work and temporary files; written in pieces, so that
# this file passes its own test.
PRIVATE = re.compile(
    rb"(?<![\w.~{])/(?:root|home|Users|work|tmp|opt)/(?!\$|\{|<|path/)[\w.-]+", re.ASCII
)


def test_no_paths_of_machines():
    for file in committed():
        content = file.read_bytes()
        if b"\0" in content[:4096]:
            continue
        found = PRIVATE.findall(content)
        assert not found, f"{file.relative_to(ROOT)} names {found[0].decode()}"


def test_the_path_pattern_finds_what_it_should():
    bad = ("root/.cache", "home/me/x", "Users/me/x", "work/main", "tmp/x.py")
    good = (b"~/work/x", b"a/tmp/b", b"./home/x", b"/path/to/python", b"https://example.org/home/x")
    for path in bad:
        assert PRIVATE.search(b"see /" + path.encode()), path
    for text in good:
        assert not PRIVATE.search(text), text


def test_nothing_large_is_committed():
    large = [f.name for f in committed() if f.stat().st_size > 2_000_000]
    assert not large


def test_the_wheel_carries_the_data(tmp_path):
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    import zipfile

    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    data = {p.name for p in (ROOT / "data").iterdir() if p.is_file() and p.suffix == ".csv"}
    assert {f"inferlab/_data/{name}" for name in data} <= names
    sources = {
        p.relative_to(ROOT / "lib").as_posix() for p in (ROOT / "lib").rglob("*.py")
    }  # fmt: skip
    assert sources <= names


def test_the_first_page_tells_the_sizes_of_the_model_that_is_held():
    held = shapes.get(DEFAULT).params
    text = (ROOT / "chapters" / "intro.md").read_text(encoding="utf-8")
    assert f"{2 * held / 1e6:.0f} MB in 16 bits, {4 * held / 1e6:.0f} MB in 32" in text
