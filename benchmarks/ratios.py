"""How still the ratios keep: step ÷ paired ceiling, ten times, every other time beside a neighbour.

    python -m benchmarks.ratios            the default: a core is left to the neighbour
    python -m benchmarks.ratios --threads 2

The neighbour is a process that spins. Printed per repeat: the machine's calibrated read bandwidth,
and for decode and prefill the median ratio and the threads it was measured on; in the end the
spread of each, largest ÷ smallest − 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import time
from pathlib import Path


def spin() -> None:
    """A busy neighbour."""
    while True:
        pass


def ratios(threads: int | None, model, rounds: int) -> dict:
    """One repeat: calibrated bandwidth (B/s), ratio of decode and of prefill, threads."""
    from inferlab.engine import decode, prefill
    from inferlab.lab import calibrate, gemm_probe, paired
    from inferlab.lab.ceilings import read_ceiling

    machine = calibrate("cpu", dtypes=(model.dtype_name,))
    ids = [(7919 * i + 31) % model.shape.vocab for i in range(256)]
    cache, whole = model.cache(1, 65), model.cache(1, 256)
    prefill(model, cache, ids[:64])

    def write():
        cache.lengths = [64]
        decode(model, cache, ids[:1])

    def read():
        whole.clear()
        prefill(model, whole, ids)

    product = gemm_probe(model.dtype_name, 1024, 1024, 1024, kernel=model.table["linear"]["gemm"])
    writing = paired(read_ceiling("cpu"), write, rounds, threads=threads)
    reading = paired(product, read, max(8, rounds // 5), threads=threads)
    return {
        "bandwidth": machine.bandwidth, "calibrated threads": machine.threads,
        "decode": writing.ratio().value, "decode threads": writing.step.provenance["threads"],
        "decode seconds": writing.step.value,
        "prefill": reading.ratio().value, "prefill threads": reading.step.provenance["threads"],
        "prefill seconds": reading.step.value, "load": os.getloadavg()[0],
    }  # fmt: skip


def spread(rows: list[dict], key: str) -> float:
    values = [row[key] for row in rows]
    return max(values) / min(values) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=75)
    parser.add_argument("--threads", type=int, help="the most threads; default leaves a core free")
    parser.add_argument("--json", type=Path, help="write the repeats here")
    args = parser.parse_args()
    from inferlab.engine import load

    model, rows = load(device="cpu", tokenizer=False), []
    for index in range(args.repeats):
        neighbour = mp.get_context("spawn").Process(target=spin, daemon=True)
        if index % 2:
            neighbour.start()
            time.sleep(0.5)
        try:
            row = {"neighbour": bool(index % 2), **ratios(args.threads, model, args.rounds)}
        finally:
            if index % 2:
                neighbour.terminate()
                neighbour.join()
        rows.append(row)
        print(
            f"{'beside a neighbour' if row['neighbour'] else 'alone':20}"
            f"read {row['bandwidth'] / 1e9:5.1f} GB/s ({row['calibrated threads']} threads)   "
            f"decode × {row['decode']:.3f} ({row['decode threads']}, "
            f"{row['decode seconds'] * 1e3:.1f} ms)   prefill × {row['prefill']:.2f} "
            f"({row['prefill threads']}, {row['prefill seconds'] * 1e3:.0f} ms)",
            flush=True,
        )
    for key in ("decode", "prefill"):
        print(f"spread of {key} ÷ ceiling: {100 * spread(rows, key):.1f} %")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
