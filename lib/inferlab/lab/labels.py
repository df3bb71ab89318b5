"""Names beside the dots of a figure, each on the first side where nothing else is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes

_SIDES = (((8, 0), "left", "center"), ((-8, 0), "right", "center"), ((0, 8), "center", "bottom"),
          ((0, -8), "center", "top"), ((7, 7), "left", "bottom"), ((-7, -7), "right", "top"),
          ((7, -7), "left", "top"), ((-7, 7), "right", "bottom"))  # fmt: skip
_FAR = (((24, 16), "left", "bottom"), ((24, -16), "left", "top"), ((-24, -16), "right", "top"))
_LETTER, _LINE = 0.56, 1.25  # width of a letter and height of a line, in font sizes

Box = tuple[float, float, float, float]
"""Left, low, right and high end in pixels of the picture."""


def beside(
    axes: Axes,
    text: str,
    spot: tuple[float, float],
    dots: Iterable[tuple[float, float]],
    taken: list[Box],
    size: float,
    margin: float = 40,
    lines: Sequence[Sequence[tuple[float, float]]] = (),
    **style: object,
) -> None:
    """Write `text` at `spot` (data), away from `dots` (pixels) and from the boxes `taken`, to which
    its own is added. Where every side is taken, on the one that hits least: better a line crossed
    than the end of the axes, and that rather than a dot or another name.

    margin  pixels by which it may stand out on the right of the axes
    lines   points along each line that is better not crossed, in pixels
    """
    scale = axes.figure.dpi / 72
    x, y = axes.transData.transform(spot)
    width, height = _LETTER * size * scale * len(text), _LINE * size * scale
    dots, best = list(dots), None
    for offset, across, upright in (*_SIDES, *_FAR):
        left = x + offset[0] * scale - width * {"left": 0, "center": 0.5, "right": 1}[across]
        low = y + offset[1] * scale - height * {"bottom": 0, "center": 0.5, "top": 1}[upright]
        box = (left, low, left + width, low + height)
        hits = 4 * sum(overlap(box, other) for other in taken)
        hits += 4 * sum(_within(dot, box) for dot in dots)
        hits += sum(min(1, sum(_within(point, box) for point in line) / 10) for line in lines)
        hits += 3 * (not axes.bbox.x0 <= left <= left + width <= axes.bbox.x1 + margin)
        hits += 3 * (low < axes.bbox.y0)
        if best is None or hits < best[0]:
            best = hits, offset, across, upright, box
        if not hits:
            break
    _, offset, across, upright, box = best
    taken.append(box)
    axes.annotate(
        text, spot, offset, textcoords="offset points", ha=across, va=upright, fontsize=size,
        annotation_clip=False, **style,
    )  # fmt: skip


def _within(point: tuple[float, float], box: Box) -> bool:
    """Whether a point lies in a box or less than 5 pixels from it."""
    return box[0] - 5 < point[0] < box[2] + 5 and box[1] - 5 < point[1] < box[3] + 5


def overlap(a: Box, b: Box) -> bool:
    """Whether two boxes share a part of the picture."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
