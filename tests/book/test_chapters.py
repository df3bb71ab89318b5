"""The book itself: every notebook alone with the built package, then the site, in a browser.

Everything is done once, by the package as it would be installed: the notebooks run with the wheel
from an empty folder, the checkout not importable, and the site is built from exactly that.
"""

from __future__ import annotations

import os
import platform
import site as python_site
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest
import torch

from inferlab.book import bootstrap, browser, pages, reading, site
from inferlab.engine import device as devices

ROOT = Path(__file__).resolve().parents[2]
CELL_TIMEOUT = "900"


def listed():
    """The notebooks of the book; a table of contents that is wrong is test_project's to tell."""
    try:
        return [str(notebook) for notebook in pages.notebooks(ROOT)]
    except pages.BookError:
        return []


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python with the wheel and every dependency of this one, but without the checkout.

    The .pth file adds this Python's packages; .pth files in there, such as the one that makes the
    checkout importable, are not read. A package google.colab is there too, as on Colab.
    """
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    program = folder / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(program), "install", "--no-deps"]
    subprocess.run([*install, "--no-index", str(wheel)], check=True, capture_output=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text("\n".join(python_site.getsitepackages()))
    (packages / "google" / "colab").mkdir(parents=True)
    (packages / "google" / "colab" / "__init__.py").touch()
    return program


@pytest.fixture(scope="module")
def inferlab(python, tmp_path_factory):
    """The installed command line, called in an empty folder."""
    folder = tmp_path_factory.mktemp("empty")
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}

    def call(*words):
        command = [str(python), "-m", "inferlab", *map(str, words)]
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert not list(folder.iterdir())
        return done

    return call


@pytest.fixture(scope="module")
def build_dir(inferlab, tmp_path_factory):
    """The folder in which the notebooks were staged; each tells for itself whether it ran."""
    folder = tmp_path_factory.mktemp("build")
    options = ("--scale", "ci", "--timeout", CELL_TIMEOUT)
    done = inferlab("run", *options, "--root", ROOT, "--build-dir", folder)
    (folder / "said.txt").write_text(done.stdout)
    return folder


@pytest.fixture(scope="module")
def html(inferlab, build_dir):
    """The site built from that stage."""
    done = inferlab("book", "--root", ROOT, "--build-dir", build_dir)
    assert done.returncode == 0, done.stdout
    return build_dir / "html"


@pytest.mark.slow
@pytest.mark.notebook
def test_the_wheel_is_what_runs(inferlab, python, book):
    book.notebook("a.ipynb", ("code", "import inferlab\nprint(inferlab.__path__[0])"))
    done = inferlab("run", "--root", book.root)
    assert done.returncode == 0, done.stdout
    (cell,) = [c for c in book.staged("a.ipynb").cells if c.outputs]
    where = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages/inferlab"
    assert cell.outputs[0].text.strip() == "(library)/inferlab"
    probe = "import inferlab, inferlab.data as d; print(inferlab.__path__[0]); print(d.folder())"
    found = subprocess.run(
        [str(python), "-P", "-c", probe], capture_output=True, text=True, check=True, cwd="/"
    )
    installed = python.parents[1] / where
    assert found.stdout.split() == [str(installed), str(installed / "_data")]


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.parametrize("notebook", listed())
def test_every_notebook_runs_alone(build_dir, notebook):
    staged = build_dir / "stage" / notebook
    assert staged.exists(), (build_dir / "said.txt").read_text()
    node = nbformat.read(staged, as_version=4)
    for number, cell in enumerate(node.cells, 1):
        for output in cell.get("outputs", []):
            where = f"{notebook}, cell {number}"
            assert output.output_type != "error", where
            assert output.get("name") != "stderr", f"{where}: {output.text}"


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.parametrize("notebook", listed())
def test_every_notebook_says_what_it_runs_on(build_dir, notebook):
    """The first cell, as on Colab: one line, which without a GPU says where one is switched on."""
    node = nbformat.read(build_dir / "stage" / notebook, as_version=4)
    (output,) = bootstrap.find(node).outputs
    (line,) = output.text.splitlines()
    facts = [version("inferlab"), platform.python_version(), torch.__version__, "computing in"]
    assert not [fact for fact in facts if fact not in line]
    assert ("Runtime → Change runtime type" in line) == (devices.pick_device().type == "cpu")


@pytest.mark.slow
@pytest.mark.notebook
def test_the_pages_are_sound(html):
    problems = site.check(html, private=(str(ROOT), str(html.parent)))
    assert not problems, "\n".join(map(str, problems))


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.browser
def test_the_pages_in_a_real_browser(html):
    problems = browser.check(html) + reading.check(html)
    assert not problems, "\n".join(map(str, problems))
