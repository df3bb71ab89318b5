"""Tables of a page: one place that turns rows of text into something a notebook shows."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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
            return f"<tr>{out}{''.join(f'<{tag}{side}>{cell}</{tag}>' for cell in rest)}</tr>"

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
