"""The roofline as a picture: operations by intensity and rate, under the two ceilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from inferlab.lab import labels
from inferlab.lab.experiments.limits import Here, Operation
from inferlab.lab.plots import _INK, DECODE, PREFILL, Figure, figure
from inferlab.theory.units import si


def roofline(
    operations: Sequence[Operation],
    here: Here,
    *,
    alt: str,
    caption: str = "",
    provenance: Mapping[str, object] | None = None,
    name: str = "roofline",
) -> Figure:
    """FLOP/s over FLOP/B, both logarithmic: the roof min(F, I·BW) as a line, operations as points.

    Points of one phase that would cover each other share a label. Raises ValueError without one.
    """
    if not operations:
        raise ValueError("a roofline needs at least one operation")

    def draw(axes: Axes, narrow: bool) -> None:
        axes.set_xscale("log")
        axes.set_yscale("log")
        low, high = min(o.intensity for o in operations) / 2.5, 4 * here.ridge
        high = max(high, 4 * max(o.intensity for o in operations))
        axes.plot(
            [low, here.ridge, high], [low * here.bandwidth, here.rate, here.rate], color=_INK,
            linewidth=1.4,
        )  # fmt: skip
        axes.plot([here.ridge] * 2, [low * here.bandwidth, here.rate], ":", color=_INK, lw=0.8)
        axes.set_xlim(low, high)
        axes.set_ylim(min(low * here.bandwidth, *(o.rate for o in operations)) / 2, here.rate * 2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_major_formatter(lambda value, _: si(value, "FLOP/s", 1))
        axes.minorticks_off()
        axes.set_xlabel("FLOP per byte" if narrow else "arithmetic intensity (FLOP per byte)")
        axes.set_ylabel("FLOP/s")
        axes.figure.draw_without_rendering()  # now it is known where a point comes to lie
        size = 8 if narrow else 9.5
        taken = _roof_names(axes, here, (low * here.ridge) ** 0.5, high, narrow, size)
        dots = list(axes.transData.transform([(o.intensity, o.rate) for o in operations]))
        roof = _along(axes, (low, low * here.bandwidth), (here.ridge, here.rate))
        for phase, colour in (("prefill", PREFILL), ("decode", DECODE)):
            mine = [o for o in operations if o.phase == phase]
            axes.plot([o.intensity for o in mine], [o.rate for o in mine], "o", color=colour,
                      markersize=6, alpha=0.85)  # fmt: skip
            for words, spot in _labels(mine):
                own = axes.transData.transform(spot)
                others = [d for d in dots if abs(d - own).max() > 1]
                labels.beside(
                    axes, words, spot, others, taken, size, 20 if narrow else 40, [roof],
                    color=colour,
                )  # fmt: skip

    data = [
        {"operation": o.name, "phase": o.phase, "intensity (FLOP/B)": o.intensity,
         "rate (FLOP/s)": o.rate, "roof (FLOP/s)": min(here.rate, o.intensity * here.bandwidth),
         "time of twice the FLOPs ÷ once": o.doubled.value}
        for o in operations
    ]  # fmt: skip
    return figure(
        draw, alt=alt, caption=caption, height=4.2, data=data, provenance=provenance, name=name
    )


def _roof_names(
    axes: Axes, here: Here, half: float, high: float, narrow: bool, size: float
) -> list[labels.Box]:
    """The names of the two ceilings and of the ridge point; the boxes they take."""
    read, product = si(here.bandwidth, "B/s", 2), si(here.rate, "FLOP/s", 2)
    names = (
        ("read" if narrow else f"read: {read}", (half, half * here.bandwidth), (-5, 5), "right"),
        ("product" if narrow else f"product: {product}", (high, here.rate), (0, 5), "right"),
        (f"ridge {here.ridge:.0f}" if narrow else f"ridge point {here.ridge:.0f}",
         (here.ridge, here.rate), (-3, 5), "right"),
    )  # fmt: skip
    made = [
        axes.annotate(words, at, away, ha=side, va="bottom", textcoords="offset points",
                      color=_INK, fontsize=size) for words, at, away, side in names
    ]  # fmt: skip
    return [tuple(text.get_window_extent().extents) for text in made]


def _along(axes: Axes, begin: tuple[float, float], end: tuple[float, float]) -> list[np.ndarray]:
    """Points of a line that is straight on the picture, near enough that no name fits between."""
    a, b = axes.transData.transform([begin, end])
    return [a + (b - a) * share for share in np.linspace(0, 1, 60)]


def _labels(operations: Sequence[Operation]) -> list[tuple[str, tuple[float, float]]]:
    """One label for operations that lie within a factor of 1.6 of each other on both axes."""
    groups: list[list[Operation]] = []
    for one in sorted(operations, key=lambda o: (-o.intensity, o.rate)):
        for group in groups:
            near = group[0]
            if all(1 / 1.6 < a / b < 1.6 for a, b in
                   ((one.intensity, near.intensity), (one.rate, near.rate))):  # fmt: skip
                group.append(one)
                break
        else:
            groups.append([one])
    made = []
    for group in groups:
        phase = group[0].phase
        names = ", ".join(o.name for o in group)
        words = f"{phase}: {names if len(group) < 3 else f'{len(group)} products'}"
        if len(group) >= 3 and any(o.name == "attention" for o in group):
            words = f"{phase}: {len(group) - 1} products and attention"
        spot = min(group, key=lambda o: o.rate)
        made.append((words, (max(o.intensity for o in group), spot.rate)))
    return made
