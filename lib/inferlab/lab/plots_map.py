"""A map of machines: how much they read and compute per second, and where the two limits meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from inferlab.lab import labels
from inferlab.lab.plots import _FAINT, _INK, DECODE, Figure, figure
from inferlab.theory.units import si


@dataclass(frozen=True)
class Place:
    """A machine on the map: bandwidth in B/s, rate in FLOP/s; `measured`, or only as printed."""

    label: str
    bandwidth: float
    rate: float
    measured: bool


def machine_map(
    places: Sequence[Place],
    *,
    ridges: Sequence[float] = (10, 30, 100, 300),
    x_label: str,
    y_label: str,
    alt: str,
    caption: str = "",
    provenance: Mapping[str, object] | None = None,
    name: str = "machines",
) -> Figure:
    """Machines by bandwidth and rate, both axes logarithmic, with lines of equal ridge point.

    Measured machines are full dots with bold names, nameplates open ones. Raises ValueError
    without a machine.
    """
    if not places:
        raise ValueError("a map needs at least one machine")

    def draw(axes: Axes, narrow: bool) -> None:
        size = 8 if narrow else 9.5
        _frame(axes, places)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.xaxis.set_major_formatter(lambda value, _: si(value, "B/s", 1))
        axes.yaxis.set_major_formatter(lambda value, _: si(value, "FLOP/s", 1))
        axes.minorticks_off()
        axes.tick_params(axis="x", labelsize=size)
        axes.figure.draw_without_rendering()  # now it is known where a point comes to lie
        taken = _ridges(axes, ridges, places, size)
        for one in sorted(places, key=lambda p: not p.measured):
            colour = DECODE if one.measured else _INK
            axes.plot([one.bandwidth], [one.rate], "o", color=colour, markersize=7,
                      markerfacecolor=colour if one.measured else "none")  # fmt: skip
            others = [(p.bandwidth, p.rate) for p in places if p is not one]
            dots = axes.transData.transform(others) if others else ()
            labels.beside(
                axes, one.label, (one.bandwidth, one.rate), dots, taken, size, color=colour,
                fontweight="bold" if one.measured else "normal",
            )  # fmt: skip

    data = [
        {"machine": p.label, "bandwidth (B/s)": p.bandwidth, "rate (FLOP/s)": p.rate,
         "ridge (FLOP/B)": p.rate / p.bandwidth, "kind": "measured" if p.measured else "nameplate"}
        for p in places
    ]  # fmt: skip
    return figure(
        draw, alt=alt, caption=caption, height=4.6, data=data, provenance=provenance, name=name
    )


def _frame(axes: Axes, places: Sequence[Place]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for scale, values in ((axes.set_xlim, [p.bandwidth for p in places]),
                          (axes.set_ylim, [p.rate for p in places])):  # fmt: skip
        scale(min(values) / 2.2, max(values) * 2.6)


def _ridges(
    axes: Axes, ridges: Sequence[float], places: Sequence[Place], size: float
) -> list[tuple]:
    """Lines on which rate ÷ bandwidth is the same, named where they begin; boxes of names."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    points = axes.transData.transform([(p.bandwidth, p.rate) for p in places])
    dots, taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in points], []
    for ridge in ridges:
        begin, end = max(left, low / ridge), min(right, high / ridge)
        if begin >= end:
            continue
        axes.plot([begin, end], [begin * ridge, end * ridge], color=_FAINT, linewidth=1, zorder=0)
        text = axes.annotate(
            f"{ridge:g} FLOP/B", (begin, begin * ridge), (9, 1), textcoords="offset points",
            ha="left", va="bottom", fontsize=size - 1, zorder=0, alpha=0.75,
        )  # fmt: skip
        box = tuple(text.get_window_extent().extents)
        if any(labels.overlap(box, other) for other in [*taken, *dots]):
            text.remove()  # a dot is there, or lines begin too near each other
        else:
            taken.append(box)
    return taken
