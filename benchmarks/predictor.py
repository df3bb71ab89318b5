"""The predictor's errors on this machine: calibrated on one shape, tried on those it has not seen.

    python -m benchmarks.predictor [--threads N] [--seconds S] [--quick]

Calibrates on `predictor.base()`, then times and predicts every step of every shape of
`predictor.unseen()`, and SmolLM2. Prints each error, and per phase the median and the 90th
percentile.
"""

from __future__ import annotations

import argparse
import dataclasses
import json

from rich.progress import Progress

from inferlab.engine import load, random_model
from inferlab.lab import clock
from inferlab.lab.experiments import predictor

PROMPTS = {"prefill": (64, 256, 1024, 2048)}
STEPS = predictor.steps(
    ((1, 32), (1, 512), (1, 2048), (2, 128), (4, 64), (4, 1024), (8, 256), (16, 64), (16, 1024)),
    PROMPTS["prefill"],
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, help="torch's threads; default: one core left free")
    parser.add_argument("--seconds", type=float, default=0.5, help="of rounds per step")
    parser.add_argument("--quick", action="store_true", help="fewer steps, prompts up to 512")
    parser.add_argument("--json", metavar="FILE", help="write rows and errors here as well")
    args = parser.parse_args()
    threads = args.threads or clock.spare_threads()
    steps = predictor.QUICK if args.quick else STEPS
    models = [(s.name, lambda s=s: random_model(s, "cpu", "bf16")) for s in predictor.unseen()]
    models.append(("smollm2-135m", lambda: load("smollm2-135m", "cpu", "bf16", tokenizer=False)))
    found: dict[str, list[predictor.Tried]] = {}
    with Progress() as bar, clock.threads(threads):
        task = bar.add_task("calibrating", total=None)

        def report(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        timer = predictor.timer("cpu", "bf16", args.seconds)
        fitted, rows = predictor.calibrated(timer, threads=threads, progress=report)
        for index, (name, make) in enumerate(models):
            bar.update(task, completed=index, total=len(models), description=name)
            found[name] = predictor.tried(fitted, make(), steps, timer, threads)
    _print(fitted, found, threads)
    if args.json:
        _save(args.json, rows, found)


def _print(fitted, found: dict[str, list[predictor.Tried]], threads: int) -> None:
    print(f"{threads} threads; ceilings {fitted.machine}")
    for key, constants in fitted.constants.items():
        told = {
            name: f"{getattr(constants, name):.3g} [{span.low:.3g}, {span.high:.3g}] {span.why}"
            for name, span in constants.ranges.items()
        }
        print(f"  {key}: {told}")
    for name, results in found.items():
        errors = " ".join(f"{r.row.label} {r.error:+.0%};" for r in results)
        print(f"{name:20s} {results[0].row.shape.params / 1e9:.2f} G  {errors}")
    large = [r for name, rs in found.items() if name != "smollm2-135m" for r in rs]
    for title, some in (("unseen", large), ("smollm2-135m", found["smollm2-135m"])):
        for phase, s in predictor.summary(some).items():
            print(
                f"{title:14s} {phase:8s} n={s['n']:3d}  median |error| {s['median']:.1%}  "
                f"90th percentile {s['p90']:.1%}  median error {s['bias']:+.1%}"
            )


def _save(path: str, rows, found) -> None:
    def plain(row) -> dict:
        return {**dataclasses.asdict(row), "shape": row.shape.name}

    content = {
        "calibration": [plain(row) for row in rows],
        "tried": [
            {**plain(r.row), "predicted": float(r.prediction), "terms": r.prediction.terms}
            for results in found.values() for r in results
        ],
    }  # fmt: skip
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)


if __name__ == "__main__":
    main()
