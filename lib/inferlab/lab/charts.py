"""Figures of single pages, in the house style of `plots`: they draw and compute nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.textpath import TextPath
from matplotlib.ticker import NullFormatter

from inferlab.lab.intervals import Interval
from inferlab.lab.plots import _FAINT, _INK, DECODE, Figure, Series, figure


@dataclass(frozen=True)
class Against:
    """One row: what was predicted, as parts of a bar and as marks, and what was measured."""

    name: str
    parts: Mapping[str, float]
    marks: Mapping[str, float]
    measured: Interval


def against(
    rows: Sequence[Against],
    *,
    x_label: str,
    alt: str,
    scale: float = 1.0,
    caption: str = "",
    provenance: Mapping[str, object] | None = None,
    name: str = "against",
) -> Figure:
    """Predictions as bars of stacked parts and as upright marks, measurements as points with their
    interval; values times `scale` on the axis. All rows have the same parts and marks.
    """
    fills = (0.55, 0.25, 0.12)

    def draw(axes: Axes, narrow: bool) -> None:
        places = range(len(rows))
        left = [0.0] * len(rows)
        for part, alpha in zip(rows[0].parts, fills, strict=False):
            width = [row.parts[part] * scale for row in rows]
            axes.barh(places, width, 0.5, left=left, color=DECODE, alpha=alpha, label=part, lw=0)
            left = [a + b for a, b in zip(left, width, strict=True)]
        for mark in rows[0].marks:
            at = [row.marks[mark] * scale for row in rows]
            axes.plot(at, places, "|", color=DECODE, markersize=22, markeredgewidth=2, label=mark)
        found = [row.measured for row in rows]
        spread = (
            [(m.value - m.low) * scale for m in found],
            [(m.high - m.value) * scale for m in found],
        )
        axes.errorbar(
            [m.value * scale for m in found], places, xerr=spread, fmt="o", color=_INK,
            markersize=5, capsize=3, label="measured",
        )  # fmt: skip
        _names(axes, [row.name for row in rows], narrow, above=12)
        axes.set_xlim(0)
        axes.set_xlabel(x_label)
        handles, texts = axes.get_legend_handles_labels()
        short = [
            copy(h) if text in rows[0].marks else h for h, text in zip(handles, texts, strict=True)
        ]
        for handle in short:
            if handle not in handles:
                handle.set_markersize(10)
        axes.legend(
            short, texts, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0),
            ncols=2 if narrow else 4, fontsize=9, columnspacing=1.2, handletextpad=0.5,
        )  # fmt: skip

    data = [
        {"name": r.name, **r.parts, **r.marks, "measured": r.measured.value,
         "low": r.measured.low, "high": r.measured.high}
        for r in rows
    ]  # fmt: skip
    height = 0.62 * len(rows) + 1.3
    return figure(
        draw, alt=alt, caption=caption, height=height, data=data, provenance=provenance, name=name
    )


def growth(
    series: Sequence[Series],
    marks: Mapping[str, float],
    *,
    x_label: str,
    y_label: str,
    alt: str,
    caption: str = "",
    name: str = "growth",
) -> Figure:
    """Counts that grow with x beside their formula: a line, and points where `low` is given, whose
    places are the ticks; both axes logarithmic. `marks` are level lines, named at their left end.
    """

    def draw(axes: Axes, narrow: bool) -> None:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        ticks = sorted({x for one in series if one.low is not None for x in one.x})
        for text, level in marks.items():
            axes.plot((ticks[0], ticks[-1]), (level, level), color=_FAINT, linewidth=1)
            axes.annotate(
                text, (ticks[0], level), (0, 2), textcoords="offset points", va="bottom", fontsize=9
            )
        for one in series:
            if one.low is None:
                axes.plot(one.x, one.y, color=DECODE, linewidth=1.6)
                axes.annotate(
                    one.label, (one.x[-1], one.y[-1]), (7, 0), textcoords="offset points",
                    va="center", color=DECODE, annotation_clip=False, fontsize=9,
                )  # fmt: skip
            else:
                axes.plot(one.x, one.y, "o", color=DECODE, markersize=5)
        shown = ticks[::2] if narrow else ticks
        axes.set_xticks(shown, [f"{x:,}" for x in shown])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"×{value:g}")
        axes.set_xlim(
            ticks[0] / 1.25, ticks[-1] * (ticks[-1] / ticks[0]) ** (0.5 if narrow else 0.2)
        )
        axes.spines["bottom"].set_bounds(ticks[0] / 1.25, ticks[-1])
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)

    data = [
        {"series": s.label, "kind": "formula" if s.low is None else "counted", "x": x, "y": y}
        for s in series for x, y in zip(s.x, s.y, strict=True)
    ]  # fmt: skip
    return figure(draw, alt=alt, caption=caption, height=3.6, data=data, name=name)


def factors(
    rows: Mapping[str, Mapping[str, float]],
    *,
    x_label: str,
    alt: str,
    caption: str = "",
    name: str = "factors",
) -> Figure:
    """One row per statement, a point per case at the factor by which it is off, 1 being right.

    rows  {statement: {case: factor}}; the axis is logarithmic, the outermost cases are named.
    """

    def draw(axes: Axes, narrow: bool) -> None:
        axes.set_xscale("log", base=2)
        axes.axvline(1, color=_FAINT, linewidth=1.5)
        for place, cases in enumerate(rows.values()):
            values = list(cases.values())
            reach = (min(1.0, *values), max(1.0, *values))
            axes.plot(reach, (place, place), color=DECODE, alpha=0.45, linewidth=2)
            axes.plot(values, [place] * len(values), "o", color=DECODE, markersize=6)
            for case, value in _outermost(cases):
                side = -1 if value < 1 else 1
                factor = f"×{value:.3g}" if value >= 1 else f"×{value:.2g}"
                case = case.replace(", ", ",\n") if side < 0 else case  # towards the names
                text = f"{case} {factor}" if case and not narrow else factor
                axes.annotate(
                    text, (value, place), (7 * side, 0), textcoords="offset points", va="center",
                    ha="left" if side > 0 else "right", fontsize=9, annotation_clip=False,
                    linespacing=1,
                )  # fmt: skip
        every = [value for cases in rows.values() for value in cases.values()]
        left, right = min(every), max(every)
        end = right * (4 if narrow else 14)
        axes.set_xlim(min(left / 4, *_room_left(axes, end)), end)
        ticks = [4.0**i for i in range(-5, 8) if left / 2 <= 4.0**i <= right * 2]
        axes.set_xticks(ticks, [f"×{t:g}" if t >= 1 else f"×1/{1 / t:g}" for t in ticks])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
        _names(axes, list(rows), narrow)
        axes.set_xlabel(x_label)

    data = [
        {"statement": statement, "case": case, "factor": value}
        for statement, cases in rows.items() for case, value in cases.items()
    ]  # fmt: skip
    return figure(
        draw, alt=alt, caption=caption, height=0.42 * len(rows) + 0.9, data=data, name=name
    )


def _room_left(axes: Axes, end: float) -> Iterator[float]:
    """For each label that ends at its point: where a logarithmic axis up to `end` must begin for
    the label to lie on it, with 6/10 of the picture's width for the axis.
    """
    width = axes.figure.get_figwidth() * 72 * 0.6  # points
    for label in axes.texts:
        if label.get_ha() == "right":
            lines = label.get_text().split("\n")
            longest = max(TextPath((0, 0), line, size=9).get_extents().width for line in lines)
            share = longest / width + 0.04
            yield label.xy[0] * (label.xy[0] / end) ** (share / (1 - share))


def _outermost(cases: Mapping[str, float]) -> list[tuple[str, float]]:
    """The largest above 1 and the smallest below it, each if there is one."""
    above = [item for item in cases.items() if item[1] >= 1]
    below = [item for item in cases.items() if item[1] < 1]
    found = [max(above, key=lambda item: item[1])] if above else []
    return found + ([min(below, key=lambda item: item[1])] if below else [])


def _names(axes: Axes, names: Sequence[str], narrow: bool, above: float = 10) -> None:
    """Names of the rows beside them, or above them where the column is narrow; first row on top."""
    axes.set_ylim(len(names) - 0.5, -0.9 if narrow else -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if not narrow:
        axes.set_yticks(range(len(names)), names)
        return
    axes.set_yticks([])
    for place, text in enumerate(names):
        axes.annotate(
            text, (0, place), (0, above), xycoords=("axes fraction", "data"),
            textcoords="offset points", va="bottom", fontsize=9,
        )  # fmt: skip
