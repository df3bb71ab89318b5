"""What *Run inference* puts on a page: the recordings as small JSON, and one of them as a figure
that needs no script. Recordings in, HTML out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from inferlab.lab.recordings import Recording, manner
from inferlab.theory.units import seconds

__all__ = ["data", "element", "latest", "missing"]

MISSING = (
    "No run has been recorded yet, so there is nothing to replay here. A notebook records runs "
    "with inferlab.lab.experiments.replay.record when it is executed: inferlab run"
)


def latest(recordings: Iterable[Recording]) -> list[Recording]:
    """The recordings in their order; of those with one id, the one made last."""
    kept: dict[str, Recording] = {}
    for run in recordings:
        before = kept.get(run.id)
        if before is None or _moment(before) <= _moment(run):
            kept[run.id] = run
    return list(kept.values())


def data(recordings: Sequence[Recording]) -> dict[str, Any]:
    """What the element reads: times in milliseconds to the tenth, each text and machine once.

    A request is one prompt and one limit of tokens, however it was run, and in whatever machine.
    """
    prompts: list[list[str]] = []
    machines: list[str] = []
    requests: dict[tuple, dict[str, Any]] = {}
    runs = []
    models = len({run.settings["model"] for run in recordings}) > 1
    places = len({_machine(run) for run in recordings}) > 1
    for number, run in enumerate(recordings):
        key = run.prompt, run.settings["max_tokens"]
        request = requests.setdefault(key, {"label": _label(run), "runs": []})
        request["runs"].append(number)
        name = [run.settings["model"]] * models + [manner(run.settings)] + [_machine(run)] * places
        runs.append(
            {
                "id": run.id,
                "label": ", ".join(name),
                "prompt": _index(prompts, list(run.pieces)),
                "answer": list(run.answer),
                "ms": [_round(t) for t in run.times],
                "passes": list(run.passes),
                "batch": run.settings["batch"],
                "machine": _index(machines, f"{run.settings['model']} on {run.origin}"),
            }
        )
    return {
        "machines": machines,
        "prompts": prompts,
        "requests": list(requests.values()),
        "runs": runs,
    }


def element(recordings: Sequence[Recording]) -> str:
    """The element with its data and, inside it, the figure for a reader without scripts."""
    content = json.dumps(data(recordings), ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        content = content.replace(sign, f"\\u{ord(sign):04x}")
    return (
        '<run-inference aria-label="Run inference" role="region">'
        f"{_figure(recordings[0])}"
        f'<script type="application/json">{content}</script></run-inference>'
    )


def missing() -> str:
    """What stands there when nothing has been recorded."""
    return f'<p class="ri-missing">{escape(MISSING)}.</p>'


def _figure(run: Recording) -> str:
    """One run, over: its prompt and answer, its two times to scale, its passes, its machine."""
    whole, first = run.times[-1], run.times[0]
    answer = "".join(run.answer).strip()
    bars = "".join(
        f'<div class="ri-bar ri-{phase}"><dt>{phase}</dt><dd><span class="ri-track">'
        f'<span style="width:{100 * t / whole:.1f}%"></span></span>'
        f'<span class="ri-time">{seconds(t)}</span></dd></div>'
        for phase, t in (("prefill", first), ("decode", whole - first))
    )
    passes = _count(run.prefill_passes, "prefill pass", "prefill passes")
    later = _count(run.decode_passes, "decode pass", "decode passes")
    said = (
        f"{passes} read {_count(len(run.pieces), 'token', 'tokens')} and wrote the first of the "
        f"answer, {later} wrote the rest: {run.passes[-1]} in all, in {seconds(whole)} "
        f"({manner(run.settings)})."
    )
    return (
        f'<div class="ri-static"><p class="ri-name">{escape(run.label)}</p>'
        f'<p class="ri-text">{escape(answer)}</p><dl class="ri-bars simple">{bars}</dl>'
        f"<p>{escape(said)}</p>"
        f'<p class="ri-origin">Recorded: {escape(run.settings["model"])} on {escape(run.origin)}.'
        "</p></div>"
    )


def _label(run: Recording) -> str:
    read, written = len(run.pieces), run.settings["max_tokens"]
    return f"{run.label} ({read} tokens read, up to {written} written)"


def _machine(run: Recording) -> str:
    return str(run.provenance.get("accelerator") or run.provenance["cpu"])


def _moment(run: Recording) -> str:
    return str(run.provenance["date"])


def _round(t: float) -> float | int:
    """Milliseconds to the tenth, without a needless .0."""
    ms = round(t * 1e3, 1)
    return int(ms) if ms == int(ms) else ms


def _index(items: list, item: Any) -> int:
    """The place of an item in a list that it is added to when it is new."""
    if item not in items:
        items.append(item)
    return items.index(item)


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"
