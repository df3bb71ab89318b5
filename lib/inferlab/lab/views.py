"""What a page shows beside figures: tables, tokens, an answer. Text in, HTML and plain text out."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_QUANTITY = re.compile(r"[-+−×]?[\d.,]+ \S{1,9}")
_WORDS = 40  # letters from which a cell is prose and keeps some width on a phone


@dataclass(frozen=True)
class Table:
    """Rows under a header; the first column is text and names its row, the others line up right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""

    def _repr_html_(self) -> str:
        def row(tag: str, cells: Sequence[str]) -> str:
            first, *rest = (html.escape(cell) for cell in cells)
            side = ' scope="col"' if tag == "th" else ""
            out = f'<th scope="{"col" if tag == "th" else "row"}">{first}</th>'
            wide = (side + _kind(cell) for cell in cells[1:])
            cells = (f"<{tag}{a}>{cell}</{tag}>" for a, cell in zip(wide, rest, strict=True))
            return f"<tr>{out}{''.join(cells)}</tr>"

        caption = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        body = "".join(row("td", cells) for cells in self.rows)
        return (
            f'<div class="il-table"><table>{caption}<thead>{row("th", self.header)}</thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def __repr__(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )


def table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> Table:
    """A table of already formatted cells. Raises ValueError for a row of another length."""
    head = tuple(header)
    body = tuple(tuple(str(cell) for cell in row) for row in rows)
    for row in body:
        if len(row) != len(head):
            raise ValueError(f"the row {row} has {len(row)} cells; the header has {len(head)}")
    return Table(head, body, caption)


def _kind(cell: str) -> str:
    """The class of a cell: prose keeps some width; a number and its unit stay together."""
    if _QUANTITY.fullmatch(cell):
        return ' class="il-quantity"'
    return ' class="il-words"' if len(cell) > _WORDS else ""


@dataclass(frozen=True)
class Tokens:
    """Pieces of text, one per token, each in a box of its own; white space is made visible."""

    pieces: tuple[str, ...]

    def _repr_html_(self) -> str:
        boxes = "".join(f"<li><code>{html.escape(_visible(p))}</code></li>" for p in self.pieces)
        return f'{_TOKEN_STYLE}<ol class="il-tokens" aria-label="tokens">{boxes}</ol>'

    def __repr__(self) -> str:
        return " | ".join(_visible(piece) for piece in self.pieces)


@dataclass(frozen=True)
class Answer:
    """What a model wrote, set apart from what the page says."""

    text: str

    def _repr_html_(self) -> str:
        paragraphs = "".join(
            f"<p>{html.escape(part)}</p>" for part in self.text.split("\n\n") if part.strip()
        )
        return f'<blockquote class="il-answer">{paragraphs}</blockquote>'

    def __repr__(self) -> str:
        return self.text


_TOKEN_STYLE = (
    "<style>.il-tokens{display:flex;flex-wrap:wrap;gap:.3rem;list-style:none;margin:0;padding:0}"
    ".il-tokens li{margin:0}.il-tokens code{border:1px solid;border-color:var(--il-line,#9aa4af);"
    "border-radius:.25rem;padding:.05rem .3rem;white-space:pre;color:inherit;background:none}"
    "</style>"
)


def tokens(pieces: Iterable[str | bytes]) -> Tokens:
    """Show pieces of text token by token; bytes that are no whole character show as ``\ufffd``."""
    text = (p if isinstance(p, str) else p.decode("utf-8", "replace") for p in pieces)
    return Tokens(tuple(text))


def answer(text: str) -> Answer:
    """Show what a model wrote; paragraphs are kept, markup in it is shown as it stands."""
    return Answer(text)


def _visible(piece: str) -> str:
    return piece.replace(" ", "\u2423").replace("\n", "\u21b5").replace("\t", "\u21e5")
