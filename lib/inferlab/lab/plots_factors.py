"""A figure of factors: by how much each of many statements is off, with intervals, beside 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from inferlab.lab.intervals import Interval
from inferlab.lab.plots import _FAINT, _INK, Figure, figure

_MARKS = ("o", "o", "x")  # off, within the band, undecided
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)

Row = tuple[str, Sequence[tuple[Interval, str]]]
"""A label and its points: a factor and the word for how it came out."""


def factors(
    rows: Sequence[Row],
    *,
    words: tuple[str, str, str],
    band: float,
    x_label: str,
    alt: str,
    caption: str = "",
    data: Sequence[Mapping[str, object]] = (),
    provenance: Mapping[str, object] | None = None,
    name: str = "factors",
) -> Figure:
    """One line per row on a logarithmic axis of factors, the band from 1/band to band shaded.

    words  how a point may have come out: off (a full dot), within (an open one), undecided (×)
    Raises ValueError for a point that came out as none of these.
    """
    unknown = {word for _, points in rows for _, word in points} - set(words)
    if unknown:
        raise ValueError(f"a point came out as {', '.join(unknown)}: there are {', '.join(words)}")

    def draw(axes: Axes, narrow: bool) -> None:
        axes.set_xscale("log")
        axes.axvspan(1 / band, band, color=_FAINT, alpha=0.35, linewidth=0)
        axes.axvline(1, color=_FAINT, linewidth=1)
        for place, (label, points) in enumerate(rows):
            for factor, word in points:
                spread = [[factor.value - factor.low], [factor.high - factor.value]]
                axes.errorbar(
                    [factor.value], [place], xerr=spread, ecolor=_INK, **_mark(words, word)
                )
            if narrow:
                axes.annotate(
                    label, (0, place - 0.28), (0, 0), xycoords=("axes fraction", "data"),
                    textcoords="offset points", va="bottom", fontsize=9,
                )  # fmt: skip
        axes.set_yticks([] if narrow else range(len(rows)), [] if narrow else [r[0] for r in rows])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(rows) - 0.4, -0.9)
        ends = [end for _, points in rows for f, _ in points for end in (f.low, f.high)]
        ticks = [t for t in _TICKS if min(ends) / 1.6 < t < max(ends) * 1.6]
        axes.set_xlim(min(*ends, 1) / 1.3, max(*ends, 1) * 1.3)
        axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axes.minorticks_off()
        axes.set_xlabel(x_label)
        for word in words:
            axes.plot([], [], label=word, **_mark(words, word))
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(words),
                    handletextpad=0.1, columnspacing=1.2, fontsize=9, borderaxespad=0)  # fmt: skip

    height = 0.42 * len(rows) + 0.9
    return figure(
        draw, alt=alt, caption=caption, height=height, data=data, provenance=provenance, name=name
    )


def _mark(words: tuple[str, str, str], word: str) -> dict:
    """How a point that came out so is drawn."""
    index = words.index(word)
    return {
        "marker": _MARKS[index], "linestyle": "none", "color": _INK, "markersize": 6,
        "markerfacecolor": "none" if index == 1 else _INK,
    }  # fmt: skip
