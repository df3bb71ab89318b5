"""Two directives of the first page: {depths}, the ways into the book, and {this-machine}, what the
machine that built the book measured.
"""

from __future__ import annotations

import json
from collections import Counter
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from inferlab.book.depths import DEPTHS, Depth, depth_of, pages_of
from inferlab.book.sphinx import run_inference
from inferlab.book.sphinx.claim_mark import gathered
from inferlab.book.sphinx.claims_gathered import Gathered
from inferlab.book.sphinx.frame import listed

__all__ = ["Depths", "ThisMachine", "chosen", "counted", "recorded", "setup", "tiles"]


def setup(app: Any) -> None:
    """Register both directives."""
    app.add_directive("depths", Depths)
    app.add_directive("this-machine", ThisMachine)


class Depths(SphinxDirective):
    """The seven depths, each with links to its pages; one without pages says so."""

    def run(self) -> list[nodes.Node]:
        order = listed(Path(self.env.srcdir))
        box = nodes.container(classes=["il-depths"])
        for depth in DEPTHS:
            found = pages_of(depth, order)
            box += self._card(depth, [page for page in found if _opens(page)])
        return [box]

    def _card(self, depth: Depth, pages: list[str]) -> nodes.container:
        """One depth: number and name, what it tells, those of its pages that
        open a way into it, by their titles.
        """
        card = nodes.container(classes=["il-depth"] if pages else ["il-depth", "il-unwritten"])
        name = nodes.paragraph(classes=["il-depth-name"])
        name += [nodes.inline("", str(depth.number), classes=["il-number"]), nodes.Text(" ")]
        name += nodes.strong("", depth.name)
        card += [name, nodes.paragraph("", depth.about)]
        if pages:
            items = nodes.bullet_list()
            items += [
                nodes.list_item("", nodes.paragraph("", "", self._link(page))) for page in pages
            ]
            card += items
        else:
            card += nodes.paragraph("", "Not written yet.", classes=["il-note"])
        return card

    def _link(self, page: str) -> addnodes.pending_xref:
        """A reference to a page, with its title as the text."""
        about = {"refdoc": self.env.docname, "refdomain": "std", "reftype": "doc"}
        return addnodes.pending_xref(
            "",
            nodes.inline("", page),
            reftarget=f"/{page}",
            refexplicit=False,
            refwarn=True,
            **about,
        )


class ThisMachine(SphinxDirective):
    """What a recorded run says of the machine: nothing where none is recorded."""

    def run(self) -> list[nodes.Node]:
        source = Path(self.env.srcdir)
        for file in run_inference.notebooks(source):
            self.env.note_dependency(str(file))
        run, verdicts = recorded(source), counted(gathered(self.env))
        return [nodes.raw("", tiles(run, verdicts), format="html")] if run else []


def recorded(source: Path) -> Any:
    """The run of the executed notebooks among the sources that stands for the machine, or None."""
    from inferlab.lab.recordings import collect

    texts = [file.read_text(encoding="utf-8") for file in run_inference.notebooks(source)]
    return chosen([run for text in texts for run in collect(json.loads(text))])


def chosen(runs: list) -> Any:
    """The longest answer to one user with a cache, the last made of those as long; else None."""
    fit = [r for r in runs if r.settings["cache"] and r.settings["batch"] == 1 and len(r.times) > 1]
    return max(fit, key=lambda r: (len(r.times), str(r.provenance["date"])), default=None)


def tiles(run: Any, verdicts: Counter) -> str:
    """Four figures of a recording, and the verdicts of the claims that the notebooks tested."""
    from inferlab.theory.units import seconds

    line, read = run.timeline, len(run.pieces)
    figures = [
        (seconds(line.ttft), f"to read {read} tokens and write the first of the answer"),
        (seconds(line.tpot), f"for each of the {line.n - 1} tokens after it"),
        (f"{1 / line.tpot:.3g}", "tokens written in a second"),
        (f"{line.tpot / (line.ttft / read):.2g} ×", "as long to write a token as to read one"),
    ]
    cells = "".join(
        f"<div><dt>{escape(about)}</dt><dd>{escape(value)}</dd></div>" for value, about in figures
    )
    said = [f"{run.settings['model']}, {run.settings['dtype']}, on {run.origin}."]
    if verdicts:
        words = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.most_common())
        total = verdicts.total()
        said.append(f"The pages of this build tested {total} claims, by verdict: {words}.")
    notes = "".join(f"<p>{escape(text)}</p>" for text in said)
    return f'<div class="il-machine"><dl>{cells}</dl>{notes}</div>'


def counted(ledger: Gathered) -> Counter:
    """How many claims have each verdict: one that several pages test is one."""
    return Counter(one.result["verdict"] for one in ledger.found.values())


def _opens(page: str) -> bool:
    """Whether a page is reached from the first one: an index stands for the folder it is in."""
    path = PurePosixPath(page)
    return depth_of(str(path.parent)) is None or path.name == "index"
