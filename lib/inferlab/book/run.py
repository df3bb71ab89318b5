"""Executes the notebooks into the stage, one after another, each in an empty folder.

A notebook runs again when something it depends on has changed: its cells, its parameters, the
library (`theory`, `engine`, `lab`), the data files, the lock file, the model, the machine.
"""

from __future__ import annotations

import ast
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from inferlab.book.hygiene import clean
from inferlab.book.keys import execution_key, machine_name, source_key
from inferlab.book.pages import notebook_path, notebooks
from inferlab.data import write_atomically

__all__ = ["Failure", "Result", "execute", "parameter_names", "run"]

KERNEL = "inferlab-book"


@dataclass(frozen=True)
class Failure:
    """Why a notebook stopped: the cell (counted from 1), its source, the error, the traceback."""

    cell: int | None
    source: str
    error: str
    traceback: str


@dataclass(frozen=True)
class Result:
    """What became of one notebook: state is "executed", "unchanged" or "failed"."""

    notebook: Path
    state: str
    failure: Failure | None = None


def run(
    root: Path,
    stage: Path,
    names: Sequence[str | Path] = (),
    parameters: dict[str, str] | None = None,
    *,
    force: bool = False,
    timeout: int | None = None,
    console: Console | None = None,
) -> list[Result]:
    """Execute the named notebooks (all that `_toc.yml` lists, if none is named) into `stage`.

    root        the book's checkout
    parameters  values for the notebook's parameters cell; a name it does not define is left out
    force       execute even what is unchanged
    timeout     seconds after which a cell counts as failed; None waits for ever

    A notebook that fails is reported and the others still run. A result is written only when it
    is whole, so an interrupted run leaves nothing behind and the next one resumes.
    """
    console = console or Console()
    asked = [notebook_path(root, name) for name in names] or list(notebooks(root))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}"),
    )
    results = []
    with Progress(*columns, console=console) as progress, private_kernel():
        tasks = [progress.add_task(str(n), start=False, total=None, state="") for n in asked]
        for notebook, task in zip(asked, tasks, strict=True):

            def show(task=task, **fields: Any) -> None:
                progress.update(task, **fields)

            progress.start_task(task)
            result = _run_one(root, stage, notebook, parameters or {}, force, timeout, show)
            progress.stop_task(task)
            show(state=result.state)
            if result.failure:
                _report(progress.console, result, parameters or {})
            results.append(result)
    return results


def _run_one(
    root: Path,
    stage: Path,
    notebook: Path,
    parameters: dict[str, str],
    force: bool,
    timeout: int | None,
    show: Callable[..., None],
) -> Result:
    """One notebook: read, compare keys, execute, clean, put on the stage."""
    try:
        node = nbformat.read(root / notebook, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        reason = f"the file cannot be read as a notebook: {error}"
        return Result(notebook, "failed", Failure(None, "", reason, ""))
    wanted = {name: parameters[name] for name in parameter_names(node) if name in parameters}
    key = execution_key(node, wanted, root)
    target = stage / notebook
    show(total=len(node.cells))
    if not force and _staged_key(target) == key:
        show(completed=len(node.cells))
        return Result(notebook, "unchanged")
    cells = len(node.cells) + bool(wanted)
    show(total=cells, state="running")
    with tempfile.TemporaryDirectory(prefix="inferlab-") as folder:
        executed, failure = execute(
            node, wanted, Path(folder), timeout=timeout, on_cell=lambda n: show(completed=n)
        )
        if failure:
            return Result(notebook, "failed", failure)
        took = executed.metadata.get("papermill", {}).get("duration")
        clean(executed, {str(Path(folder).resolve()): ".", folder: ".", str(root): "(book)"})
    executed.metadata["inferlab"] = {
        "key": key,
        "source": source_key(node),
        "parameters": wanted,
        "seconds": took,
        "machine": machine_name(),
    }
    write_atomically(target, nbformat.writes(executed) + "\n")
    return Result(notebook, "executed")


def execute(
    node: NotebookNode,
    parameters: dict[str, str],
    folder: Path,
    *,
    timeout: int | None = None,
    on_cell: Callable[[int], None] = lambda done: None,
) -> tuple[NotebookNode, Failure | None]:
    """Run a notebook with papermill in `folder` with this interpreter; needs `private_kernel`.

    Returns the executed copy and, where a cell failed, the failure.
    """
    import papermill
    from papermill.exceptions import PapermillExecutionError

    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    _register_engine()
    fresh = nbformat.from_dict(node)
    try:
        executed = papermill.execute_notebook(
            fresh,
            None,
            parameters,
            engine_name=KERNEL,
            kernel_name=KERNEL,
            language="python",
            progress_bar=False,
            cwd=folder,
            execution_timeout=timeout,
            on_cell=on_cell,
        )
    except PapermillExecutionError as error:
        text = "\n".join(error.traceback)
        what = f"{error.ename}: {error.evalue}"
        return fresh, Failure(error.cell_index + 1, error.source, what, text)
    except Exception as error:  # a dead kernel, a time-out, a broken installation
        return fresh, Failure(None, "", f"{type(error).__name__}: {error}", "")
    return executed, None


def parameter_names(node: NotebookNode) -> tuple[str, ...]:
    """The names assigned in the cells tagged `parameters`, in order; empty without such a cell."""
    names = []
    for cell in node.cells:
        if cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", ()):
            for statement in ast.parse(cell.source).body:
                targets = getattr(statement, "targets", [getattr(statement, "target", None)])
                names += [t.id for t in targets if isinstance(t, ast.Name)]
    return tuple(dict.fromkeys(names))


@contextmanager
def private_kernel() -> Iterator[None]:
    """Makes this very interpreter the kernel, whatever `python3` kernel the user has installed."""
    with tempfile.TemporaryDirectory(prefix="inferlab-kernel-") as folder:
        spec = Path(folder) / "kernels" / KERNEL / "kernel.json"
        spec.parent.mkdir(parents=True)
        launch = [sys.executable, "-m", "ipykernel_launcher", "--log-level=CRITICAL"]
        about = {
            "argv": [*launch, "-f", "{connection_file}"],
            "display_name": "Python 3",
            "language": "python",
            "env": {"IPYTHONDIR": str(Path(folder) / "ipython")},
        }
        spec.write_text(json.dumps(about), encoding="utf-8")
        before = os.environ.get("JUPYTER_PATH")
        os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [folder, before]))
        try:
            yield
        finally:
            if before is None:
                del os.environ["JUPYTER_PATH"]
            else:
                os.environ["JUPYTER_PATH"] = before


def _register_engine() -> None:
    """Tell papermill of an engine like its own that calls `on_cell(cells done)` after each cell."""
    from papermill.engines import NBClientEngine, papermill_engines

    class Engine(NBClientEngine):
        @classmethod
        def execute_managed_notebook(cls, nb_man, kernel_name, on_cell, **options):
            complete = nb_man.cell_complete

            def cell_complete(cell, cell_index=None, **rest):
                complete(cell, cell_index=cell_index, **rest)
                on_cell((cell_index or 0) + 1)

            nb_man.cell_complete = cell_complete
            return super().execute_managed_notebook(nb_man, kernel_name, **options)

    papermill_engines.register(KERNEL, Engine)


def _staged_key(target: Path) -> str | None:
    """The execution key of what lies on the stage, or None when nothing whole does."""
    try:
        about = nbformat.read(target, as_version=4).metadata["inferlab"]
        return about["key"] if "seconds" in about else None
    except (OSError, KeyError, ValueError, TypeError, nbformat.ValidationError):
        return None


def _report(console: Console, result: Result, parameters: dict[str, str]) -> None:
    """Show the cell, the error and the command that runs this notebook alone again."""
    from rich.syntax import Syntax
    from rich.text import Text

    failure = result.failure
    assert failure is not None
    where = f", cell {failure.cell}" if failure.cell else ""
    console.print(Text(f"\n{result.notebook}{where} failed", style="bold red"))
    if failure.source:
        console.print(Syntax(failure.source, "python", line_numbers=True, theme="ansi_light"))
    if failure.traceback:
        console.print(Text.from_ansi(failure.traceback))
    else:
        console.print(Text(failure.error, style="red"))
    options = "".join(f" --{name} {value}" for name, value in parameters.items())
    console.print(Text(f"To run it again: inferlab run {result.notebook}{options}\n", style="bold"))
