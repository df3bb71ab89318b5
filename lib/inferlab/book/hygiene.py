"""What an executed notebook must not carry into a page: paths, timings, injected cells."""

from __future__ import annotations

import sys
from pathlib import Path

from nbformat import NotebookNode

import inferlab

__all__ = ["clean", "scrub"]

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}


def clean(node: NotebookNode, replacements: dict[str, str]) -> NotebookNode:
    """Strip, in place, what an execution leaves behind; returns the same notebook.

    Gone are papermill's and the client's metadata (paths and times), the name of the private
    kernel, and the paths of this machine in text outputs. The injected cell stays, tagged
    `remove-cell`: the page shows the reader's own parameters cell.
    """
    node.metadata.pop("papermill", None)
    node.metadata["kernelspec"] = dict(KERNELSPEC)
    for cell in node.cells:
        for key in ("papermill", "execution", "ExecuteTime"):
            cell.metadata.pop(key, None)
        tags = list(cell.metadata.get("tags", []))
        if "injected-parameters" in tags and "remove-cell" not in tags:
            tags.append("remove-cell")
        if tags:
            cell.metadata["tags"] = tags
        else:
            cell.metadata.pop("tags", None)
        for output in cell.get("outputs", []):
            _clean_output(output, replacements)
    return node


def scrub(text: str, replacements: dict[str, str]) -> str:
    """`text` with this machine's paths replaced, longest first: given, library, Python, home."""
    paths = {
        str(Path(inferlab.__file__).resolve().parents[1]): "(library)",
        sys.prefix: "(python)",
        sys.base_prefix: "(python)",
        str(Path.home()): "~",
    }
    paths |= replacements
    for path in sorted(paths, key=len, reverse=True):
        if len(path) > 4:
            text = text.replace(path, paths[path])
    return text


def _clean_output(output: NotebookNode, replacements: dict[str, str]) -> None:
    """Scrub the text forms of one output; pictures and JSON are left as they are."""
    if "text" in output:
        output["text"] = scrub(output["text"], replacements)
    for kind, value in output.get("data", {}).items():
        if kind.startswith("text/") and isinstance(value, str):
            output["data"][kind] = scrub(value, replacements)
