"""The directive {run-inference}: replays the runs that the executed notebooks recorded.

It gathers the recordings of every notebook among the sources (which are the executed ones) and of
`data/measurements/*.json`. Script and style go to the pages that use it, and to no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from inferlab import data

__all__ = ["RunInference", "notebooks", "setup"]

STATIC = Path(__file__).parent / "static"
LOG = logging.getLogger(__name__)


class RunInference(SphinxDirective):
    """Emits <run-inference>; says so where nothing is recorded (a warning in a strict build).

    A recording that contradicts itself is a warning, which stops the build of the book.
    """

    def run(self) -> list[nodes.Node]:
        # imports torch: only a page that replays pays for it
        from inferlab.book.sphinx import run_inference_view as view

        found = []
        for file, read in _sources(Path(self.env.srcdir)):
            self.env.note_dependency(str(file))
            try:
                found += read(file)
            except ValueError as fault:
                LOG.warning("%s: %s", file.name, fault, location=self.get_location())
        if found:
            return [_Raw("", view.element(view.latest(found)), format="html")]
        if _strict():
            LOG.warning("run-inference: no run is recorded", location=self.get_location())
        return [nodes.raw("", view.missing(), format="html")]


class _Raw(nodes.raw):
    """Raw HTML that can be told from other raw HTML, so that its page gets script and style."""


def notebooks(source: Path) -> Iterator[Path]:
    """The notebooks among the sources, in reading order of their paths."""
    for file in sorted(source.rglob("*.ipynb")):
        if not any(part.startswith((".", "_")) for part in file.relative_to(source).parts):
            yield file


def setup(app: Any) -> None:
    """Register the directive, its node and where its script and style are."""
    app.add_directive("run-inference", RunInference)
    app.add_node(_Raw, html=(_visit, None))
    app.connect("builder-inited", _static)
    app.connect("html-page-context", _assets)


def _sources(source: Path) -> Iterator[tuple[Path, Any]]:
    """Every file that may hold recordings, with the function that reads them."""
    from inferlab.lab import recordings

    def of_notebook(file: Path) -> list[recordings.Recording]:
        return recordings.collect(json.loads(file.read_text(encoding="utf-8")))

    for file in notebooks(source):
        yield file, of_notebook
    for name in data.names():
        if name.startswith("measurements/") and name.endswith(".json"):
            yield data.path(name), recordings.read


def _strict() -> bool:
    from inferlab.lab.claims import strict_by_default

    return strict_by_default()


def _visit(writer: Any, node: nodes.Node) -> None:
    writer.body.append(node.astext())
    raise nodes.SkipNode


def _static(app: Any) -> None:
    app.config.html_static_path.append(str(STATIC))


def _assets(app: Any, page: str, template: str, context: dict, doctree: Any) -> None:
    if doctree is not None and next(doctree.findall(_Raw), None) is not None:
        app.add_css_file("run-inference.css")
        app.add_js_file("run-inference.js", loading_method="defer")
