"""Recordings of runs: every token of a prompt and its answer, and when it came.

They are plain data that contradict themselves when a hand has changed them. *Run inference*
replays them, so that what a reader watches is what a machine did.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path

from inferlab.lab.plots import origin
from inferlab.lab.views import Table, table
from inferlab.theory.latency import Timeline
from inferlab.theory.units import seconds

__all__ = ["Recording", "Recordings", "collect", "from_json", "manner", "read", "save"]

_SCHEMA = 1
_SETTINGS = {
    "model": str, "dtype": str, "device": str, "cache": bool, "batch": int, "max_tokens": int,
}  # fmt: skip
_PLACE = ("cpu", "threads", "torch", "date", "commit")
_SCRIPT = re.compile(r'<script type="application/json" class="inferlab-run">(.*?)</script>', re.S)


@dataclass(frozen=True)
class Recording:
    """One run of one request, the first of its batch, as it happened.

    prompt      what the user wrote; pieces: the tokens the model read, the template's with them
    answer      the tokens it wrote, as text; times: when each was there, seconds since sending
    passes      forward passes made until each of these tokens, counted
    settings    model, dtype, device, cache (bool), batch, max_tokens and what else was set
    provenance  machine, versions, commit and date (`lab.provenance`)

    Raises ValueError when it cannot be what a run left behind.
    """

    id: str
    label: str
    prompt: str
    pieces: tuple[str, ...]
    answer: tuple[str, ...]
    times: tuple[float, ...]
    passes: tuple[int, ...]
    settings: Mapping = field(default_factory=dict)
    provenance: Mapping = field(default_factory=dict)

    def __post_init__(self):
        fault = _fault(self)
        if fault:
            raise ValueError(f"this is no recording of a run ({self.id!r}): {fault}")

    @property
    def timeline(self) -> Timeline:
        """The times as `theory.latency` reads them, sent at 0."""
        return Timeline(0.0, self.times)

    @property
    def prefill_passes(self) -> int:
        """Passes until the first token."""
        return self.passes[0]

    @property
    def decode_passes(self) -> int:
        """Passes after the first token."""
        return self.passes[-1] - self.passes[0]

    @property
    def date(self) -> str:
        """The day of the run, ISO 8601 (UTC)."""
        return str(self.provenance["date"])[:10]

    @property
    def origin(self) -> str:
        """Machine, versions, date and commit in one line."""
        return origin(self.provenance)

    def to_dict(self) -> dict:
        """Plain JSON values, from which `from_dict` makes an equal recording."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {
            **plain, "prefill_passes": self.prefill_passes, "decode_passes": self.decode_passes,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping) -> Recording:
        """The recording of `to_dict`. Raises ValueError for what is none, or was changed."""
        try:
            values = {key: data[key] for key in cls.__dataclass_fields__}
            one = cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
            counted = data["prefill_passes"], data["decode_passes"]
        except (KeyError, TypeError, IndexError) as fault:
            raise ValueError(f"this is no recording of a run: {fault!r}") from None
        if counted != (one.prefill_passes, one.decode_passes):
            raise ValueError(
                f"the pass counts of recording {one.id!r} do not follow from its passes: the file "
                "was changed by hand; record again"
            )
        return one


@dataclass(frozen=True)
class Recordings:
    """Some recordings: a table to look at, and the data for *Run inference* inside its HTML.

    left_out  what was not recorded, and why, a sentence each
    """

    runs: tuple[Recording, ...]
    left_out: tuple[str, ...] = ()

    def __add__(self, other: Recordings) -> Recordings:
        return Recordings(self.runs + other.runs, self.left_out + other.left_out)

    def to_json(self) -> str:
        """JSON that may stand inside an HTML script element: no <, > or & is in it."""
        plain = json.dumps(
            {"schema": _SCHEMA, "recordings": [run.to_dict() for run in self.runs]},
            allow_nan=False,
        )
        for sign in "<>&":
            plain = plain.replace(sign, f"\\u{ord(sign):04x}")
        return plain

    def to_html(self) -> str:
        """One line per recording, and all of them as JSON in a script element."""
        data = f'<script type="application/json" class="inferlab-run">{self.to_json()}</script>'
        places = dict.fromkeys(run.origin for run in self.runs)
        said = [*(f"Recorded on {place}." for place in places), *self.left_out]
        where = "".join(f"<p>{escape(sentence)}</p>" for sentence in said)
        return f'<div class="inferlab-runs">{self._table()._repr_html_()}{where}{data}</div>'

    _repr_html_ = to_html

    def __repr__(self) -> str:
        return "\n".join([repr(self._table()), *self.left_out])

    def _table(self) -> Table:
        head = ["request", "run as", "read", "written", "passes", "first token", "whole answer"]
        rows = [
            [run.label, manner(run.settings), len(run.pieces), len(run.answer), run.passes[-1],
             seconds(run.times[0]), seconds(run.times[-1])]
            for run in self.runs
        ]  # fmt: skip
        return table(head, rows, "Runs recorded token by token, as Run inference replays them.")


def collect(notebook: Mapping) -> list[Recording]:
    """The recordings in the outputs of an executed notebook (its JSON), in their order.

    Raises ValueError for one that was changed since it was made.
    """
    found = []
    for cell in notebook.get("cells", []):
        for output in cell.get("outputs", []):
            page = output.get("data", {}).get("text/html", "")
            page = page if isinstance(page, str) else "".join(page)
            for match in _SCRIPT.findall(page):
                found += from_json(json.loads(match))
    return found


def from_json(content: object) -> list[Recording]:
    """The recordings under the key "recordings" of a JSON object; none where there is no such key.

    Raises ValueError for a recording that was changed since it was made.
    """
    listed = content.get("recordings", ()) if isinstance(content, Mapping) else ()
    return [Recording.from_dict(data) for data in listed]


def save(recordings: Recordings, path: str | Path) -> Path:
    """Write recordings to a JSON file that `read` and the book understand; returns its path."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(json.loads(recordings.to_json()), ensure_ascii=False, indent=1) + "\n"
    file.write_text(text, encoding="utf-8")
    return file


def read(path: str | Path) -> list[Recording]:
    """The recordings of a JSON file, none if it holds other things. Raises ValueError, naming it,
    for a file that is no JSON and for a recording that was changed.
    """
    try:
        return from_json(json.loads(Path(path).read_text(encoding="utf-8")))
    except ValueError as fault:
        raise ValueError(f"{Path(path).name}: {fault}") from None


def manner(settings: Mapping) -> str:
    """How a request was run, in words: "bf16, KV cache, 8 at once"."""
    cache = "KV cache" if settings["cache"] else "no cache"
    beside = f", {settings['batch']} at once" if settings["batch"] > 1 else ""
    return f"{settings['dtype']}, {cache}{beside}"


def _fault(run: Recording) -> str:
    """What in a recording contradicts itself; empty if nothing."""
    if not all(isinstance(text, str) for text in (*run.pieces, *run.answer, run.prompt, run.label)):
        return "a token is no text"
    if not run.pieces or not run.answer:
        return "there is no prompt or no answer"
    if not len(run.answer) == len(run.times) == len(run.passes):
        return "tokens, times and passes differ in number"
    if not all(math.isfinite(t) for t in run.times) or not run.times[0] > 0:
        return "a time is no time since sending"
    if any(later < earlier for earlier, later in pairwise(run.times)):
        return "its times go backwards"
    if any(type(n) is not int for n in run.passes) or any(
        later <= earlier for earlier, later in pairwise((0, *run.passes))
    ):
        return "its passes are not counted upwards"
    wrong = [k for k, kind in _SETTINGS.items() if type(run.settings.get(k)) is not kind]
    wrong += [k for k in _PLACE if k not in run.provenance]
    return f"it does not say {', '.join(wrong)}" if wrong else ""
