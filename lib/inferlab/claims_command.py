"""What `inferlab claims` does: run the trials of claims, say what came out, as often as asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from inferlab.terminal import in_a_sentence, interruptible

if TYPE_CHECKING:
    from inferlab.lab.experiments.repeats import Run
    from inferlab.lab.ledger import Entry

__all__ = ["Neighbour", "claims", "good", "run", "summary"]


class Neighbour(StrEnum):
    """Beside which runs of a trial a process keeps a core busy."""

    none = "none"
    half = "half"


def claims(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Claims of data/claims.yml; all if left out.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="How often each trial is run.")] = 1,
    busy: Annotated[
        Neighbour, typer.Option(help="half: every second run beside a busy process.")
    ] = Neighbour.none,
    plant: Annotated[
        bool, typer.Option("--plant", help="Plant falsehoods: each must be caught.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Test claims here and now, without their notebooks, and say which come out as recorded."""
    from inferlab.book.pages import WrongUse
    from inferlab.lab import ledger

    try:
        for id in ids or ():
            ledger.read()[id]
    except ValueError as error:
        raise WrongUse(str(error)) from None
    with interruptible(), in_a_sentence():
        status = run(ids or (), repeat, busy is Neighbour.half, plant, as_json, device)
    raise typer.Exit(status)


def run(
    ids: Sequence[str], times: int, busy: bool, planted: bool, as_json: bool, device: str
) -> int:
    """Run and print; the exit status: 0 when every verdict came out as the ledger has it and every
    plant was caught, else 1. Raises ValueError for an id that is not in the ledger.
    """
    from inferlab.lab import ledger
    from inferlab.lab.experiments import repeats, trials

    book = ledger.read()
    entries = [book[id] for id in ids] or list(book.values())
    chosen = [entry for entry in entries if trials.trial(entry.id)]
    found: dict[str, list[Run]] = {}
    steps = sum(len(trials.TRIALS[e.id].plants) if planted else times for e in chosen)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=steps)
        for entry in chosen:
            bar.update(task, description=entry.id)
            if planted:
                found[entry.id] = repeats.plant(entry.id, device)
                bar.advance(task, len(found[entry.id]))
            else:
                found[entry.id] = repeats.repeat(
                    entry.id, times, busy, device, lambda done: bar.advance(task)
                )
    left = [entry for entry in entries if entry not in chosen]
    if as_json:
        print(json.dumps(_plain(found, left), indent=2))
    else:
        _show(found, left, planted)
    return int(not all(good(run) for runs in found.values() for run in runs))


def good(run: Run) -> bool:
    """Of an honest run: it came out as the ledger has it. Of a planted falsehood: it did not."""
    return run.as_foreseen != bool(run.plant)


def summary(id: str, runs: Sequence[Run]) -> str:
    """One line: how often the verdict came out, how long a run took."""
    from inferlab.lab import ledger

    entry = ledger.read()[id]
    longest = max(run.seconds for run in runs)
    took = f"{median(run.seconds for run in runs):.1f} s a run, {longest:.1f} s the longest"
    if runs[0].plant:
        caught = ", ".join(f"{r.plant} {'caught' if good(r) else 'NOT caught'}" for r in runs)
        return f"{id}: {caught}; {took}"
    kind = "recorded" if entry.recorded else "foreseen"
    busy = sum(run.busy for run in runs)
    beside = f", {busy} of them beside a busy process" if busy else ""
    count = f"{sum(map(good, runs))} of {len(runs)} as {kind} ({entry.expected()}){beside}"
    return f"{id}: {count}; {took}"


def _show(found: dict[str, list[Run]], left: Sequence[Entry], planted: bool) -> None:
    from inferlab.lab.claim_view import text

    console = Console(soft_wrap=True, highlight=False)
    for id, runs in found.items():
        shown = [run for run in runs if not good(run)][:1] or runs[-1:]
        for run in [] if planted and good(shown[0]) else shown:
            console.print(Text(text(run.result)))
        style = "green" if all(map(good, runs)) else "bold red"
        console.print(Text(summary(id, runs), style=style))
    for entry in left:
        what = "not testable" if entry.expected() == "not testable" else "not tested yet"
        console.print(Text(f"{entry.id}: {what}" + (f": {entry.why}" if entry.why else "")))


def _plain(found: dict[str, list[Run]], left: Sequence[Entry]) -> dict:
    """Plain JSON values of all runs, and the claims that have no trial."""
    return {
        "claims": {
            id: [
                {"seconds": round(run.seconds, 3), "busy": run.busy, "plant": run.plant,
                 "good": good(run), **run.result.to_dict()}
                for run in runs
            ]
            for id, runs in found.items()
        },
        "no trial": [entry.id for entry in left],
    }  # fmt: skip
