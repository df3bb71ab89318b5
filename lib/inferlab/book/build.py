"""Builds the HTML book from the executed notebooks on the stage, without a request to any network.

The sources are gathered in a temporary folder, built there with every warning an error, and only a
finished book takes the place of the last one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import yaml

from inferlab import data
from inferlab.book import bootstrap, card, doors
from inferlab.book.depths import DEPTHS, pages_of
from inferlab.book.keys import source_key
from inferlab.book.pages import BookError, digest, notebooks, pages, replace_folder, scratch
from inferlab.book.slim import slim
from inferlab.book.sphinx import equation_pages

__all__ = ["address", "build", "gather", "github_address", "settings", "site_address"]

SUBTITLE = "An executable book on prefill, decode and the cost of a token"
COLAB = "https://colab.research.google.com"
GITHUB = re.compile(
    r"(?:https?://|ssh://)?(?:[^@/\s]+@)?github\.com[:/]+([\w.-]+)/([\w.-]+?)(?:\.git)?/?"
)


def build(root: Path, build_folder: Path, *, force: bool = False) -> tuple[Path, bool]:
    """Build the book of the checkout `root` into `build_folder/html`.

    Returns the folder of the site, and whether it was built (False: nothing had changed).
    Raises BookError, with Sphinx's warnings, when anything at all is wrong; the last good book
    then stays where it is.
    """
    site, key_file = build_folder / "html", build_folder / "html.key"
    with scratch(build_folder, "book") as folder:
        source = folder / "source"
        gather(root, build_folder / "stage", source)
        key = _book_key(source)
        if not force and site.is_dir() and key_file.exists() and key_file.read_text() == key:
            return site, False
        out = _sphinx(source, folder / "out", root)
        _finish(out, source, root)
        key_file.unlink(missing_ok=True)
        replace_folder(out, site)
        key_file.write_text(key)
    return site, True


def gather(root: Path, stage: Path, source: Path) -> None:
    """Lay out in `source` what Sphinx reads: executed notebooks, pages, settings, static files.

    Raises BookError when a notebook was not executed, or was changed since.
    """
    missing = [n for n in notebooks(root) if not _is_current(root / n, stage / n)]
    if missing:
        names = " ".join(str(n) for n in missing)
        raise BookError(
            f"not executed as it now stands: {names}. Execute it first: inferlab run {names}"
        )
    chapters = root / "chapters"
    skip = shutil.ignore_patterns("*.ipynb", ".*", "_static", "__pycache__")
    if chapters.is_dir():
        shutil.copytree(chapters, source / "chapters", ignore=skip)
    for page in pages(root):
        (source / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile((stage if page.suffix == ".ipynb" else root) / page, source / page)
    for static in (root / "_static", chapters / "_static"):
        if static.is_dir():
            shutil.copytree(static, source / "_static", dirs_exist_ok=True)
    vendor = source / "_vendor" / "vendor" / "mathjax"
    vendor.mkdir(parents=True)
    shutil.copyfile(_mathjax(), vendor / "tex-svg.js")
    shutil.copyfile(root / "_toc.yml", source / "_toc.yml")
    equation_pages.generate(source)
    text = yaml.safe_dump(settings(root, stage), sort_keys=False, allow_unicode=True)
    (source / "_config.yml").write_text(text, encoding="utf-8")


def settings(root: Path, stage: Path) -> dict[str, Any]:
    """`_config.yml` completed with what depends on the checkout.

    With a repository's address come its buttons; a launch button comes only when every notebook
    has a cell tagged `bootstrap`, which is what makes it run there. Without one, no button is dead.
    A book built from a release's tag leads to the notebooks of that tag, since their cell installs
    the library of that release; a tag cannot be edited, so that button goes.
    """
    config = _config(root)
    repository = config.setdefault("repository", {})
    place, release = address(root), _release(root)
    repository["url"] = place
    html = config.setdefault("html", {})
    html["baseurl"] = html.get("baseurl") or site_address(place)
    for button in ("use_repository_button", "use_issues_button", "use_edit_page_button"):
        html[button] = bool(place)
    if place and release:
        repository["branch"] = release
        html["use_edit_page_button"] = False
    config.pop("launch_buttons", None)
    if place and all(_has_bootstrap(stage / n) for n in notebooks(root)):
        config["launch_buttons"] = {"colab_url": COLAB}
    return config


def address(root: Path) -> str:
    """The repository's address: that of the GitHub remote, else of `_config.yml`; "" if unknown."""
    return github_address(root) or (_config(root).get("repository") or {}).get("url") or ""


def site_address(repository: str) -> str:
    """Where GitHub Pages shows the site of a repository: https://OWNER.github.io/NAME/, or without
    NAME for the repository OWNER.github.io; "" for a repository that is not on GitHub.
    """
    match = GITHUB.fullmatch(repository)
    if match is None:
        return ""
    host = f"{match[1]}.github.io".lower()
    return f"https://{host}/" + ("" if match[2].lower() == host else f"{match[2]}/")


def github_address(root: Path) -> str | None:
    """https://github.com/OWNER/NAME of the git remote `origin`, or None where it is not that.

    User names and tokens in the remote's address are left out.
    """
    match = GITHUB.fullmatch(_git(root, "remote", "get-url", "origin"))
    return f"https://github.com/{match[1]}/{match[2]}" if match else None


def _release(root: Path) -> str | None:
    """The tag of this version of the library, where the checkout stands at it."""
    tag = f"v{version('inferlab')}"
    return tag if tag in _git(root, "tag", "--points-at", "HEAD").split() else None


def _git(root: Path, *words: str) -> str:
    """What git answers in the checkout, stripped; "" where it cannot."""
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _config(root: Path) -> dict[str, Any]:
    return yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8")) or {}


def _sphinx(source: Path, out: Path, root: Path) -> Path:
    """Run Jupyter Book with warnings as errors; returns the folder of the HTML."""
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build"]
    command += [str(source), "--path-output", str(out), "--builder", "html"]
    command += ["-n", "-W", "--keep-going"]
    environment = {**os.environ, "PYTHONUTF8": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
        check=False,
    )
    html = out / "_build" / "html"
    if done.returncode or not (html / "index.html").exists():
        raise BookError("the book was not built:\n" + _complaints(done.stdout, source, root))
    return html


def _finish(html: Path, source: Path, root: Path) -> None:
    """What Sphinx does not make: the two doors, the picture for links, and lighter pages."""
    from inferlab.book.sphinx.landing import recorded

    first, *order = (page.with_suffix("").as_posix() for page in pages(root))
    config = yaml.safe_load((source / "_config.yml").read_text(encoding="utf-8"))
    title, base = str(config.get("title", "")), config["html"].get("baseurl") or ""
    starts = [(found[0], depth.title) for depth in DEPTHS if (found := pages_of(depth, order))]
    doors.write(html, title, f"{first}.html", [(f"{p}.html", name) for p, name in starts], base)
    card.draw(html / "_static" / "card.png", title, SUBTITLE, recorded(source))
    slim(html)


def _complaints(output: str, source: Path, root: Path) -> str:
    """The warnings and errors in Sphinx's output with the checkout's paths; else its last lines."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", output).replace(str(source), str(root))
    lines = text.splitlines()
    chosen = [n for n, line in enumerate(lines) if re.search(r"WARNING|ERROR|Error:|rror:", line)]
    if not chosen:
        return "\n".join(lines[-20:])
    return "\n".join(line for n in chosen for line in lines[n : n + 3] if line.strip())


def _is_current(notebook: Path, staged: Path) -> bool:
    """Whether the staged copy was executed from the notebook as it now stands."""
    try:
        node = nbformat.read(staged, as_version=4)
        return node.metadata["inferlab"]["source"] == source_key(nbformat.read(notebook, 4))
    except (OSError, KeyError, ValueError, TypeError, nbformat.ValidationError):
        return False


def _has_bootstrap(notebook: Path) -> bool:
    return bootstrap.find(nbformat.read(notebook, as_version=4)) is not None


def _mathjax() -> Path:
    """The one script that sets mathematics, from the installed package that carries it."""
    spec = find_spec("mathjax")
    for place in spec.submodule_search_locations or () if spec else ():
        file = Path(place) / "static" / "mathjax" / "es5" / "tex-svg.js"
        if file.is_file():
            return file
    raise BookError(
        "MathJax is not installed, and the book loads nothing from a network: "
        "pip install 'inferlab[book]'"
    )


def _book_key(source: Path) -> str:
    """Digest of all that the HTML depends on: the gathered sources, the measurements that pages
    show, our extensions, the tools.
    """
    ours = sorted(p for p in Path(__file__).parent.rglob("*") if p.suffix in {".py", ".css", ".js"})
    tools = [f"{name} {version(name)}" for name in ("jupyter-book", "sphinx", "sphinx-book-theme")]
    measured = [data.path(name) for name in data.names() if name.startswith("measurements/")]
    files = ((source, source), (data.folder(), measured), (Path(__file__).parent, ours))
    return digest([*tools, *(part for base, found in files for part in _files(base, found))])


def _files(base: Path, files: Path | list[Path]) -> Iterator[bytes | str | Path]:
    """Each file as its name relative to `base`, then its contents."""
    found = files if isinstance(files, list) else sorted(p for p in base.rglob("*") if p.is_file())
    for file in found:
        yield file.relative_to(base).as_posix()
        yield file
