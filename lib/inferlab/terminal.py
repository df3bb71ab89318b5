"""How the command line says what went wrong: in one sentence, with the status that fits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.text import Text

__all__ = ["in_a_sentence", "interruptible", "say"]


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends with one sentence and status 130, as shells expect."""
    try:
        yield
    except KeyboardInterrupt:
        say("Interrupted: nothing half-written was kept; the same command resumes.")
        raise typer.Exit(130) from None


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """What cannot be had or does not fit ends with what the library says of it, and status 1."""
    from inferlab.engine.weights.fetch import FetchError

    try:
        yield
    except (ValueError, MemoryError, OSError, FetchError) as error:
        say(str(error))
        raise typer.Exit(1) from None


def say(text: str) -> None:
    """One message to standard error, in red, wrapped by nobody."""
    Console(stderr=True, soft_wrap=True).print(Text(text, style="red"))
