"""Many predictions against what was measured, as ratios: the diagonal lies flat at one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from inferlab.lab.plots import DECODE, PREFILL, Figure, figure
from inferlab.theory.units import si


@dataclass(frozen=True)
class Cloud:
    """Points of one kind: measured seconds, predicted seconds, phase of each; hollow or filled."""

    label: str
    measured: Sequence[float]
    predicted: Sequence[float]
    phases: Sequence[str]
    filled: bool = True


def ratios(
    clouds: Sequence[Cloud],
    *,
    x_label: str,
    y_label: str = "predicted ÷ published",
    alt: str,
    band: float = 0.1,
    caption: str = "",
    provenance: Mapping[str, object] | None = None,
    name: str = "ratios",
) -> Figure:
    """Predicted ÷ measured over measured, both axes logarithmic; a band of ± `band` around one."""

    def draw(axes: Axes, narrow: bool) -> None:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.axhspan(1 / (1 + band), 1 + band, color="#808080", alpha=0.18, linewidth=0)
        axes.axhline(1, color="#808080", linewidth=0.8)
        for cloud in clouds:
            for phase, colour in (("prefill", PREFILL), ("decode", DECODE)):
                rows = zip(cloud.measured, cloud.predicted, cloud.phases, strict=True)
                xy = [(x, y / x) for x, y, kind in rows if kind == phase]
                if not xy:
                    continue
                axes.plot(
                    *zip(*xy, strict=True), "o" if cloud.filled else "D", color=colour,
                    markersize=4.5 if cloud.filled else 3.5, linewidth=0, alpha=0.85,
                    markerfacecolor=colour if cloud.filled else "none",
                    label=f"{phase}, {cloud.label}",
                )  # fmt: skip
        spread = [p / m for c in clouds for m, p in zip(c.measured, c.predicted, strict=True)]
        low, high = min(0.8, *spread) / 1.1, max(1.25, *spread) * 1.1
        ticks = [t for t in (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.4, 2, 3, 5) if low <= t <= high]
        axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
        axes.minorticks_off()
        axes.set_ylim(low, high)
        times = [m for c in clouds for m in c.measured]
        decades = range(math.floor(math.log10(min(times))), math.ceil(math.log10(max(times))) + 1)
        steps = (1,) if len(decades) > 3 else (1, 3)
        marks = [k * 10.0**d for d in decades for k in steps]
        marks = [t for t in marks if min(times) / 1.5 <= t <= max(times) * 1.5]
        axes.set_xticks(marks, [si(t, "s", 1) for t in marks])
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.figure.legend(
            frameon=False, loc="outside lower center", ncols=1 if narrow else 2, fontsize=9
        )

    data = [
        {"prediction": c.label, "phase": p, "measured": m, "predicted": t}
        for c in clouds for m, t, p in zip(c.measured, c.predicted, c.phases, strict=True)
    ]  # fmt: skip
    return figure(
        draw, alt=alt, caption=caption, height=4.2, data=data, provenance=provenance, name=name
    )
