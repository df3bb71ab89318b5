"""The picture that other sites show beside a link to the book: its title, and one recorded run as
two bars to scale.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["draw"]

SIZE, DPI = (12.0, 6.3), 100  # 1200 by 630 pixels, what link previews ask for
GROUND, INK, FAINT, PREFILL, DECODE = "#10161d", "#f3f5f7", "#9aa7b4", "#56b4e9", "#f0a742"


def draw(file: Path, title: str, subtitle: str, run: Any = None) -> None:
    """Write the card as PNG. run: a recording (`lab.recordings`), whose two times become the bars;
    without one the card carries the words alone.
    """
    from matplotlib.figure import Figure

    canvas = Figure(figsize=SIZE, dpi=DPI, facecolor=GROUND)
    serif = {"family": "serif", "color": INK}
    canvas.text(0.07, 0.74, title, fontsize=46, weight="bold", **serif)
    canvas.text(0.07, 0.63, subtitle, fontsize=21, color=FAINT)
    if run is not None:
        _bars(canvas, run)
    file.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(file, format="png", facecolor=GROUND, metadata={"Software": None})


def _bars(canvas: Any, run: Any) -> None:
    """Prefill and decode of a recorded run, end to end on one line of time."""
    from inferlab.theory.units import seconds

    first, whole = run.times[0], run.times[-1]
    axes = canvas.add_axes((0.07, 0.2, 0.86, 0.24))
    axes.set(xlim=(0, whole), ylim=(0, 1))
    axes.axis("off")
    axes.barh(0.3, first, height=0.3, left=0, color=PREFILL)
    axes.barh(0.3, whole - first, height=0.3, left=first, color=DECODE)
    read, written = len(run.pieces), len(run.answer)
    words = {"fontsize": 20, "va": "bottom"}
    axes.text(0, 0.55, f"{read} tokens read: {seconds(first)}", color=PREFILL, **words)
    text = f"{written - 1} tokens written after the first: {seconds(whole - first)}"
    axes.text(whole, 0.55, text, color=DECODE, ha="right", **words)
    where = f"Measured: {run.settings['model']} on {run.origin}"
    canvas.text(0.07, 0.12, where, fontsize=13, color=FAINT)
