"""The command line: `inferlab doctor`, `run`, `book`, `claims`, `bootstrap`, …

Exit status: 0 when all is fine, 1 when the check or the run failed, 2 for wrong usage.
"""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferlab.claims_command import claims
from inferlab.terminal import in_a_sentence, interruptible, say

__all__ = ["app", "main"]

app = typer.Typer(
    help="Predict, run, compare: the tools of the book What Is Inference?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Root = Annotated[
    Path | None,
    typer.Option(help="The book's checkout; found from the current folder if left out."),
]
BuildDir = Annotated[
    Path | None, typer.Option(help="Where results go; _build in the checkout if left out.")
]


class Scale(StrEnum):
    """How much a notebook does: what the machine allows, what CI can wait for, and between."""

    auto = "auto"
    ci = "ci"
    laptop = "laptop"
    gpu = "gpu"


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """What is on this machine, what will run, and what to mend."""
    from inferlab.doctor import examine

    findings = examine()
    broken = any(finding.state == "broken" for finding in findings)
    if as_json:
        print(json.dumps([finding.as_json() for finding in findings], indent=2))
        raise typer.Exit(int(broken))
    table = Table(box=None, show_header=False, padding=(0, 1))
    colours = {"fine": "green", "note": "yellow", "broken": "bold red"}
    for finding in findings:
        table.add_row(
            Text(finding.name, style="bold"),
            Text(finding.state, style=colours[finding.state]),
            Text(finding.value),
        )
        if finding.remedy:
            table.add_row("", "", Text(f"→ {finding.remedy}", style=colours[finding.state]))
    console = Console()
    console.print(table)
    if broken:
        console.print("Mend what is marked broken, then try again.", style="bold red")
    else:
        console.print("Everything that the book needs is here.", style="green")
    raise typer.Exit(int(broken))


@app.command()
def run(
    notebook: Annotated[
        list[str] | None,
        typer.Argument(help="Notebooks to execute; all of the book's if left out."),
    ] = None,
    scale: Annotated[Scale, typer.Option(help="How much each notebook does.")] = Scale.auto,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = None,
    model: Annotated[str | None, typer.Option(help="A model by name, file, folder or id.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Execute what is unchanged too.")] = False,
    timeout: Annotated[
        int | None, typer.Option(min=1, help="Seconds after which a cell counts as failed.")
    ] = None,
    root: Root = None,
    build_dir: BuildDir = None,
) -> None:
    """Execute the notebooks, each alone in an empty folder, and stage what came out."""
    from inferlab.book.pages import find_root
    from inferlab.book.run import run as run_notebooks

    place = _root(root) if root else find_root()
    parameters = {"scale": scale.value, "device": device, "model": model}
    with interruptible():
        results = run_notebooks(
            place,
            (build_dir or place / "_build").resolve() / "stage",
            notebook or (),
            {name: value for name, value in parameters.items() if value is not None},
            force=force,
            timeout=timeout,
        )
    failed = [result for result in results if result.state == "failed"]
    if any(result.state == "executed" for result in results):
        print("The pages show these results once they are built: inferlab book")
    if failed:
        say(f"{len(failed)} of {len(results)} notebooks failed.")
    raise typer.Exit(int(bool(failed)))


@app.command()
def book(
    force: Annotated[bool, typer.Option("--force", help="Build even if nothing changed.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Open every page in a browser and report faults.")
    ] = False,
    root: Root = None,
    build_dir: BuildDir = None,
) -> None:
    """Build the book from the staged notebooks and say where to open it."""
    from inferlab.book import bootstrap as bootstrap_cells
    from inferlab.book import build
    from inferlab.book.pages import find_root

    place = _root(root) if root else find_root()
    with interruptible():
        site, built = build.build(place, (build_dir or place / "_build").resolve(), force=force)
    console = Console(soft_wrap=True)
    console.print("The book was built." if built else "The book is up to date.", style="green")
    console.print(Text(f"Open it:   {(site / 'index.html').as_uri()}"))
    console.print(Text(f"Serve it:  {_python()} -m http.server -b 127.0.0.1 -d {_near(site)} 8000"))
    if build.address(place) and bootstrap_cells.without_address(place):
        words = "On Colab the notebooks cannot find the library: inferlab bootstrap, then commit."
        console.print(words, style="yellow")
    if check:
        from inferlab.book import browser, reading
        from inferlab.book import site as pages

        problems = pages.check(site, private=(str(place),))
        problems += browser.check(site) + reading.check(site)
        for problem in problems:
            console.print(Text(str(problem), style="red"))
        console.print(f"{len(problems)} faults found on the pages.")
        raise typer.Exit(int(bool(problems)))


@app.command()
def bootstrap(root: Root = None) -> None:
    """Write the cell that installs the library on Colab into every notebook, after its title."""
    import inferlab
    from inferlab.book import bootstrap as cells
    from inferlab.book import build
    from inferlab.book.pages import find_root

    place = _root(root) if root else find_root()
    address = build.address(place)
    changed = cells.sync(place, address, inferlab.__version__)
    console = Console(soft_wrap=True)
    for notebook in changed:
        console.print(Text(f"changed: {notebook}"))
    console.print(f"{len(changed)} of {len(cells.notebooks(place))} notebooks changed.")
    if not address:
        console.print("No address of a repository is known: the cells say so where they are run.")


@app.command()
def calibrate(
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    thorough: Annotated[bool, typer.Option("--thorough", help="Four times as long.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the records to this file.")] = None,
) -> None:
    """Measure this machine's ceilings: read bandwidth, matrix products, fixed times."""
    from inferlab.data import write_atomically
    from inferlab.engine.device import pick_device
    from inferlab.lab import ceilings

    with interruptible(), in_a_sentence():
        found = ceilings.calibrate(str(pick_device(device)), quick=not thorough)
        if out:
            write_atomically(out, found.to_json() + "\n")
    print(found.to_json() if as_json else found)


@app.command()
def measure(
    model: Annotated[str, typer.Option(help="A model by name, file, folder or id.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    scale: Annotated[Scale, typer.Option(help="How much is measured.")] = Scale.auto,
    out: Annotated[
        Path | None, typer.Option(help="The file; data/measurements/<machine and day>.json.")
    ] = None,
) -> None:
    """Measure the standard set of this machine, in at most four minutes, and write it down."""
    from rich.progress import Progress

    from inferlab import data
    from inferlab.engine.load import DEFAULT
    from inferlab.lab.experiments import sweeps

    with interruptible(), in_a_sentence(), Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("ceilings", total=None)

        def show(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        found = sweeps.measure(model or DEFAULT, device, scale.value, show)
        place = found.save(out or data.folder() / "measurements" / f"{found.id}.json")
    for what, why in found.left_out.items():
        say(f"Left out: {what}: {why}")
    if found.disturbed:
        say(
            f"{found.disturbed} points ran beside a busy process, on fewer threads: "
            "measure again while nothing else runs."
        )
    points = len(found.prefill) + len(found.decode)
    print(f"{points} points in {found.seconds:.0f} s: {_near(place)}")


app.command()(claims)


def main() -> None:
    """Run the command line; what goes wrong is said in one sentence, without a traceback."""
    from inferlab.book.pages import BookError, WrongUse

    try:
        app()
    except BookError as error:
        say(str(error))
        sys.exit(2 if isinstance(error, WrongUse) else 1)


def _root(folder: Path) -> Path:
    """The checkout named by --root; wrong usage if it is none."""
    folder = folder.resolve()
    if not (folder / "_toc.yml").is_file():
        raise typer.BadParameter(f"{folder} holds no _toc.yml", param_hint="--root")
    return folder


def _near(path: Path) -> Path:
    """A path as it is shortest to type from here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _python() -> str:
    """This interpreter as it is typed from here: a link is not followed out of its environment."""
    return str(_near(Path(sys.executable)))


if __name__ == "__main__":
    main()
