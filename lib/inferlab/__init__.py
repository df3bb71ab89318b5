"""inferlab: predict, run, compare. The library of the book *What Is Inference?*

The names a notebook uses are here and are imported when they are first asked for, so that
`inferlab.theory` stays light.
"""

from importlib import import_module
from importlib.metadata import version

__version__ = version("inferlab")

_PLACES = {
    "inferlab.theory": ("counts", "economics", "hardware", "roofline", "shapes", "units"),
    "inferlab.engine": ("load", "random_model"),
    "inferlab.lab": ("Case", "calibrate", "choose", "claim", "memory"),
    "inferlab.lab.experiments": ("next_token", "reading", "replay", "request"),
    "inferlab.lab.plots": ("bars", "sweep", "timelines"),
    "inferlab.lab.views": ("answer", "table", "tokens"),
}
_MODULES = {
    "counts", "economics", "hardware", "next_token", "reading", "replay", "request", "roofline",
    "shapes", "units",
}  # fmt: skip
_FROM = {name: place for place, names in _PLACES.items() for name in names}

__all__ = sorted(_FROM)


def __getattr__(name: str):
    if name not in _FROM:
        raise AttributeError(f"module 'inferlab' has no attribute {name!r}")
    if name in _MODULES:
        return import_module(f"{_FROM[name]}.{name}")
    return getattr(import_module(_FROM[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
