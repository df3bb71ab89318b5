"""Our engine beside Hugging Face `generate` and llama.cpp: same file, same prompt, same threads.

    make bench            or  python -m benchmarks --rounds 9 --json peers.json

Every contestant lives in a process of its own and waits; the rounds go around (A B C A B C …), so
that a machine whose speed drifts drifts for all. Reported: medians, and ratios of the rounds' pairs
with quartiles. Prefill is the time to the first token of a prompt of P tokens; decode the median
gap between the tokens that follow it (TPOT without the first token).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

PROMPT, SHORT, GENERATE = 512, 64, 49


def prompts(vocab: int) -> dict[str, list[int]]:
    """Fixed pseudo-random token ids; the work does not depend on which tokens they are."""
    ids = [(7919 * i + 104729) % (vocab - 100) + 50 for i in range(PROMPT)]
    return {"prefill": ids, "decode": ids[:SHORT]}


# ------------------------------------------------------------------- one function per contestant
# each returns run(ids, n) -> time stamps of n tokens; the clock is read by the caller at the start


def ours(path: str, threads: int, dtype: str = "bf16", tuned: bool = False):
    import torch

    from inferlab.engine import generate, load
    from inferlab.lab import ceilings

    torch.set_num_threads(threads)
    model = load(path, device="cpu", dtype=dtype)
    if tuned:  # the kernels that are faster on this machine, where that is more than noise
        table = ceilings.tune(model, save=False)
        print(f"  tuned: {table}", file=sys.stderr, flush=True)
        model = load(path, device="cpu", dtype=dtype, table=table)

    def run(ids, n):
        return [time.perf_counter() for _ in generate(model, ids, n)]

    return run


def hugging_face(path: str, threads: int, onednn: bool = True, static: bool = False,
                 attention: str = "sdpa", compiled: bool = False, dtype: str = "bf16"):  # fmt: skip
    import torch
    from transformers import AutoModelForCausalLM, StoppingCriteria
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(threads)
    torch.backends.mkldnn.enabled = onednn
    file = Path(path)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, attn_implementation=attention,
        dtype={"bf16": torch.bfloat16, "fp32": torch.float32}[dtype],
    ).eval()  # fmt: skip
    if compiled:
        from torch._inductor import config

        config.freezing = True
        model.forward = torch.compile(model.forward, dynamic=True)

    class Stamp(StoppingCriteria):
        def __call__(self, input_ids, scores, **_):
            self.times.append(time.perf_counter())
            return torch.zeros(len(input_ids), dtype=torch.bool)

    def run(ids, n):
        stamp = Stamp()
        stamp.times = []
        tokens = torch.tensor([ids])
        extra = {"cache_implementation": "static"} if static else {}
        model.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=n, min_new_tokens=n,
            do_sample=False, stopping_criteria=[stamp], pad_token_id=0, **extra,
        )  # fmt: skip
        return stamp.times

    return run


def llama_cpp(path: str, threads: int, flash: bool = True, kind: str = ""):
    import ctypes

    import llama_cpp as lib
    import numpy as np

    @ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    def silent(level, text, data):
        pass

    lib.llama_log_set(silent, None)
    lib.llama_backend_init()
    if kind:  # the same weights stored as another type, for a comparison at equal bytes
        made = Path(tempfile.gettempdir()) / f"peers-{os.getpid()}-{kind}.gguf"
        params = lib.llama_model_quantize_default_params()
        params.ftype = {"bf16": 32, "q8_0": 7, "q4_0": 2}[kind]
        params.allow_requantize, params.nthread = True, threads
        if lib.llama_model_quantize(path.encode(), str(made).encode(), ctypes.byref(params)):
            raise RuntimeError(f"llama.cpp could not write the model as {kind}")
        path = str(made)
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    if kind:
        Path(path).unlink()
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = 1024, 512, 512
    params.n_threads = params.n_threads_batch = threads
    params.flash_attn_type = 1 if flash else 0
    context = lib.llama_init_from_model(model, params)
    vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))

    def run(ids, n):
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        stamps, pending = [], list(ids)
        for _ in range(n):
            array = (lib.llama_token * len(pending))(*pending)
            if lib.llama_decode(context, lib.llama_batch_get_one(array, len(pending))):
                raise RuntimeError("llama_decode failed")
            logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), (vocab,))
            pending = [int(logits.argmax())]
            stamps.append(time.perf_counter())
        return stamps

    return run


CONTESTANTS = {
    "inferlab bf16": (ours, {}),
    "HF generate bf16, default": (hugging_face, {}),
    "HF generate bf16, oneDNN off": (hugging_face, {"onednn": False}),
    "llama.cpp Q4_1, flash attention": (llama_cpp, {}),
    "inferlab bf16, tuned": (ours, {"tuned": True}),
    "inferlab fp32": (ours, {"dtype": "fp32"}),
    "HF generate fp32": (hugging_face, {"dtype": "fp32"}),
    "HF generate bf16, static cache": (hugging_face, {"static": True}),
    "HF generate bf16, static cache, oneDNN off": (hugging_face, {"static": True, "onednn": False}),
    "HF generate bf16, eager attention": (hugging_face, {"attention": "eager"}),
    "HF generate bf16, eager attention, oneDNN off": (
        hugging_face, {"attention": "eager", "onednn": False}),
    "HF generate bf16, torch.compile": (hugging_face, {"compiled": True}),
    "llama.cpp Q4_1, no flash attention": (llama_cpp, {"flash": False}),
    "llama.cpp bf16": (llama_cpp, {"kind": "bf16"}),
    "llama.cpp Q8_0": (llama_cpp, {"kind": "q8_0"}),
    "llama.cpp Q4_0": (llama_cpp, {"kind": "q4_0"}),
}  # fmt: skip
STANDARD = list(CONTESTANTS)[:5]


def serve(pipe, name: str, path: str, threads: int, vocab: int) -> None:
    """A contestant's process: loads, warms up, then answers each 'prefill' or 'decode' asked."""
    try:
        make, options = CONTESTANTS[name]
        run, asked = make(path, threads, **options), prompts(vocab)
        for ids in asked.values():
            run(ids, 4)
        pipe.send(None)
        while (what := pipe.recv()) is not None:
            start = time.perf_counter()
            if what == "prefill":
                pipe.send(run(asked[what], 1)[0] - start)
            else:
                stamps = run(asked[what], GENERATE)
                gaps = [b - a for a, b in zip(stamps, stamps[1:], strict=False)]
                pipe.send(statistics.median(gaps))
    except Exception as error:  # shown by the parent; the other contestants go on
        pipe.send(f"{type(error).__name__}: {error}")


def measure(names, path: str, threads: int, rounds: int, vocab: int) -> dict:
    """{name: {"prefill": [seconds per round], "decode": [...]}}; who fails is left out."""
    context, lines, out = mp.get_context("spawn"), {}, {}
    for name in names:  # loaded one after the other: a load must not disturb a warm-up
        here, there = context.Pipe()
        asked = (there, name, path, threads, vocab)
        worker = context.Process(target=serve, args=asked, daemon=True)
        worker.start()
        there.close()  # so that a process that dies is heard as the end of its line
        print(f"  loading {name} …", file=sys.stderr, flush=True)
        try:
            failure = here.recv()
        except EOFError:
            worker.join()
            failure = f"its process ended with code {worker.exitcode} before it was ready"
        if failure:
            print(f"  {name}: {failure}", file=sys.stderr)
        else:
            lines[name], out[name] = here, {"prefill": [], "decode": []}
    for index in range(rounds):
        print(f"  round {index + 1} of {rounds}", file=sys.stderr, flush=True)
        for what in ("prefill", "decode"):
            for name, pipe in lines.items():
                pipe.send(what)
                out[name][what].append(pipe.recv())
    for pipe in lines.values():
        pipe.send(None)
    return out


def ratio(slow: list[float], fast: list[float]) -> tuple[float, float, float]:
    """Median and quartiles of slow ÷ fast, round by round."""
    pairs = sorted(a / b for a, b in zip(slow, fast, strict=True))
    low, middle, high = statistics.quantiles(pairs, n=4)
    return middle, low, high


def report(times: dict) -> None:
    base = "inferlab bf16"
    print(f"{'':46} prefill P={PROMPT}   decode        ours is faster by, [quartiles]")
    for name, t in times.items():
        line = f"{name:46} {PROMPT / statistics.median(t['prefill']):6.0f} tok/s  "
        line += f"{statistics.median(t['decode']) * 1e3:6.2f} ms/tok"
        if name != base and base in times:
            for what in ("prefill", "decode"):
                m, low, high = ratio(t[what], times[base][what])
                line += f"   {what} ×{m:.2f} [{low:.2f}, {high:.2f}]"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--all", action="store_true", help="every setting of the peers")
    parser.add_argument("--only", nargs="*", help="contestants by name (a part of it will do)")
    parser.add_argument("--json", type=Path, help="write the seconds of every round here")
    args = parser.parse_args()
    from inferlab.engine.weights import fetch
    from inferlab.theory import shapes

    names = list(CONTESTANTS) if args.all else STANDARD
    if args.only:
        names = [n for n in CONTESTANTS if any(part in n for part in args.only)]
    path, vocab = str(fetch.resolve("smollm2-135m")), shapes.get("smollm2-135m").vocab
    times = measure(names, path, args.threads, args.rounds, vocab)
    report(times)
    if args.json:
        args.json.write_text(json.dumps(times, indent=1))
