"""Figures of the book: they take records and draw them; nothing is computed here.

A figure is inline SVG whose text and lines take the colour of the page, so it belongs to a light
page and to a dark one. It is drawn twice, for a wide column and for a narrow one, and carries its
data as a download, the machine and the commit, and a text that says what is seen.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from inferlab.lab.records import Measurement
from inferlab.theory.latency import Timeline
from inferlab.theory.units import seconds, si

PREFILL, DECODE = "#0072b2", "#b45309"
"""The colour of each phase in the whole book (Okabe and Ito's blue; an orange dark enough to
read). On a dark page the style sheet lightens both."""

_INK, _FAINT = "#010203", "#040506"  # stand-ins, replaced in the SVG by what the page says
_PAGE = {
    PREFILL: f"var(--il-prefill, {PREFILL})",
    DECODE: f"var(--il-decode, {DECODE})",
    _INK: "currentColor",
    _FAINT: "var(--il-line, #9aa4af)",
}
_STYLE = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10.5, "text.color": _INK,
    "axes.edgecolor": _FAINT, "axes.labelcolor": _INK, "xtick.color": _FAINT, "ytick.color": _FAINT,
    "xtick.labelcolor": _INK, "ytick.labelcolor": _INK, "axes.spines.top": False,
    "axes.spines.right": False, "figure.facecolor": "none", "axes.facecolor": "none",
    "savefig.facecolor": "none",
}  # fmt: skip
_WIDE, _NARROW = 7.0, 3.5  # inches
_SWITCH = (
    "<style>.il-narrow{display:none}@media(max-width:640px){.il-wide{display:none}"
    ".il-narrow{display:block}}.il-figure svg{width:100%;height:auto;overflow:visible}"
    ".il-figure text{font-family:inherit!important}"
    ".il-figure figcaption{font-size:.85em;font-weight:400}</style>"
)


@dataclass(frozen=True)
class Figure:
    """A drawn figure: SVG for a wide and a narrow column, alt text, data, where it was measured."""

    wide: str
    narrow: str
    alt: str
    caption: str
    data: Sequence[Mapping[str, object]] = field(repr=False, default=())
    provenance: Mapping[str, object] = field(repr=False, default_factory=dict)
    name: str = "figure"

    def _repr_html_(self) -> str:
        under = [html.escape(self.caption)] if self.caption else []
        if self.provenance:
            under.append(html.escape(f"Measured on {origin(self.provenance)}."))
        if self.data:
            text = base64.b64encode(_csv(self.data).encode()).decode()
            under.append(
                f'<a download="{self.name}.csv" href="data:text/csv;base64,{text}">'
                f"Data of this figure (CSV)</a>"
            )
        return (
            f'<figure class="il-figure">{_SWITCH}<div class="il-wide">{self.wide}</div>'
            f'<div class="il-narrow">{self.narrow}</div>'
            f"<figcaption>{' '.join(under)}</figcaption></figure>"
        )

    def __repr__(self) -> str:
        return f"[figure] {self.alt}"


def origin(provenance: Mapping[str, object]) -> str:
    """Where and when a record was measured, in one line."""
    machine = provenance.get("accelerator") or provenance["cpu"]
    threads = provenance["threads"]
    return (
        f"{machine}, {threads} thread{'s' * (threads != 1)}, torch {provenance['torch']}, "
        f"{str(provenance['date'])[:10]}, commit {provenance['commit']}"
    )


def figure(
    draw: Callable[[Axes, bool], None],
    *,
    alt: str,
    caption: str = "",
    height: float = 2.8,
    data: Sequence[Mapping[str, object]] = (),
    provenance: Mapping[str, object] | None = None,
    name: str = "figure",
) -> Figure:
    """Draw with `draw(axes, narrow)`, once for each width.

    alt  what is seen, in a sentence or two; it must be given. height in inches.
    """
    if len(alt.split()) < 5:
        raise ValueError(f"alt={alt!r}: say in a sentence what is seen in the figure")
    drawn = []
    for narrow in (False, True):
        with rc_context({**_STYLE, "svg.hashsalt": f"{name} {narrow}"}):
            canvas = Canvas(figsize=(_NARROW if narrow else _WIDE, height), layout="constrained")
            draw(canvas.add_subplot(), narrow)
            drawn.append(_svg(canvas, alt, f"{name}-{'n' if narrow else 'w'}"))
    return Figure(*drawn, alt, caption, tuple(data), dict(provenance or {}), name)


def timelines(
    rows: Mapping[str, Timeline],
    *,
    alt: str,
    caption: str = "",
    provenance: Mapping[str, object] | None = None,
    name: str = "timeline",
) -> Figure:
    """One bar per row on a common clock: prefill as one block, then one block per token written."""

    def draw(axes: Axes, narrow: bool) -> None:
        end = max(line.e2e for line in rows.values())
        scale, unit = (1e3, "ms") if end < 2 else (1.0, "s")
        for place, (label, line) in enumerate(rows.items()):
            axes.broken_barh([(0, line.ttft * scale)], (place - 0.3, 0.6), color=PREFILL)
            begins = [t * scale for t in line.tokens[:-1]]
            gap = 0.18 * end * scale / len(line.tokens) if len(line.tokens) < 120 else 0
            gap = min(gap, min(line.itl) * scale * 0.3)
            spans = [(b, d * scale - gap) for b, d in zip(begins, line.itl, strict=True)]
            axes.broken_barh(spans, (place - 0.3, 0.6), color=DECODE, linewidth=0)
            text = seconds(line.e2e)
            axes.annotate(
                text, (line.e2e * scale, place), (5, 0), textcoords="offset points", va="center"
            )
            if narrow:
                axes.annotate(
                    label, (0, place - 0.36), (0, 2), textcoords="offset points", va="bottom"
                )
        axes.set_yticks([] if narrow else range(len(rows)), [] if narrow else list(rows))
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_ylim(len(rows) - 0.5, -0.8 if narrow else -0.5)
        axes.set_xlim(0, end * scale * (1.25 if narrow else 1.1))
        axes.set_xlabel(f"time since the request was sent ({unit})")
        axes.locator_params(axis="x", nbins=4 if narrow else 8)

    data = [
        {"row": label, "token": i + 1, "phase": "decode" if i else "prefill", "seconds": t}
        for label, line in rows.items()
        for i, t in enumerate(line.tokens)
    ]
    height = 0.55 * len(rows) + 1.0
    return figure(
        draw, alt=alt, caption=caption, height=height, data=data, provenance=provenance, name=name
    )


@dataclass(frozen=True)
class Series:
    """One curve: x and y, an interval per point where it was measured, and the phase it shows."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    phase: str
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


def predicted(label: str, x: Sequence[float], y: Sequence[float], phase: str) -> Series:
    """A curve that was computed: drawn as a line."""
    return Series(label, tuple(x), tuple(y), phase)


def measured(label: str, x: Sequence[float], records: Sequence[Measurement], phase: str) -> Series:
    """Medians that were measured, with their quartiles: drawn as points."""
    return Series(
        label, tuple(x), tuple(r.value for r in records), phase,
        tuple(r.q25 for r in records), tuple(r.q75 for r in records),
    )  # fmt: skip


def _apart(ticks: Sequence[float], share: float) -> list[str]:
    """Labels of places on a logarithmic axis, "" for one nearer to the next than `share` of it."""
    kept, least = [ticks[-1]], (ticks[-1] / ticks[0]) ** share
    for tick in reversed(ticks[:-1]):
        kept += [tick] if kept[-1] / tick >= least else []
    return [f"{x:g}" if x in kept else "" for x in ticks]


def sweep(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    unit: str,
    alt: str,
    caption: str = "",
    provenance: Mapping[str, object] | None = None,
    name: str = "sweep",
) -> Figure:
    """Predictions as lines, measurements as points with quartiles, both axes logarithmic."""

    def draw(axes: Axes, narrow: bool) -> None:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        for one in series:
            colour = PREFILL if one.phase == "prefill" else DECODE
            if one.low is None:
                axes.plot(one.x, one.y, color=colour, linewidth=1.6)
            else:
                spread = (
                    [y - low for y, low in zip(one.y, one.low, strict=True)],
                    [high - y for y, high in zip(one.y, one.high, strict=True)],
                )
                axes.errorbar(one.x, one.y, spread, fmt="o", color=colour, markersize=5)
            axes.annotate(
                one.label, (one.x[-1], one.y[-1]), (7, 0), textcoords="offset points", va="center",
                color=colour, annotation_clip=False, fontsize=9 if narrow else 10,
            )  # fmt: skip
        ticks = sorted({x for one in series for x in one.x})
        axes.set_xticks(ticks, _apart(ticks, 0.22 if narrow else 0.08))
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: si(value, unit, 2))
        right = max(ticks) * (max(ticks) / min(ticks)) ** (0.55 if narrow else 0.35)
        axes.set_xlim(min(ticks) / 1.25, right)
        axes.spines["bottom"].set_bounds(min(ticks) / 1.25, max(ticks))
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)

    data = [
        {"series": s.label, "phase": s.phase, "x": x, "y": y,
         "q25": s.low[i] if s.low else "", "q75": s.high[i] if s.high else ""}
        for s in series for i, (x, y) in enumerate(zip(s.x, s.y, strict=True))
    ]  # fmt: skip
    return figure(
        draw, alt=alt, caption=caption, height=3.6, data=data, provenance=provenance, name=name
    )


def bars(
    rows: Sequence[tuple[str, float, float]],
    *,
    labels: tuple[str, str],
    x_label: str,
    alt: str,
    caption: str = "",
    provenance: Mapping[str, object] | None = None,
    name: str = "bars",
) -> Figure:
    """Rows of (name, predicted, measured): the prediction as a bar, the measurement as a point."""

    def draw(axes: Axes, narrow: bool) -> None:
        places = range(len(rows))
        axes.barh(places, [p for _, p, _ in rows], 0.62, color=DECODE, alpha=0.45, label=labels[0])
        axes.plot([m for _, _, m in rows], places, "o", color=_INK, markersize=5, label=labels[1])
        axes.set_yticks(places, [name for name, _, _ in rows])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel(x_label)
        axes.legend(frameon=False, loc="lower right")

    data = [{"name": n, labels[0]: p, labels[1]: m} for n, p, m in rows]
    height = 0.3 * len(rows) + 0.9
    return figure(
        draw, alt=alt, caption=caption, height=height, data=data, provenance=provenance, name=name
    )


def _svg(canvas: Canvas, alt: str, prefix: str) -> str:
    out = io.StringIO()
    canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*pt"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*pt"', r"\1", text, count=1)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    for colour, said in _PAGE.items():
        text = text.replace(colour, said)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(alt)}"', 1)


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
