"""Recordings: what a run left behind, nothing else, and a hand that changes one is found out."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math

import pytest
import torch

from inferlab.engine import random_model
from inferlab.engine.tokenizer import Tokenizer
from inferlab.engine.weights import gguf
from inferlab.lab import recordings
from inferlab.lab.experiments import replay
from inferlab.lab.experiments.replay import EVERY, PLAIN, Ask, Setting
from inferlab.lab.meters import timed
from inferlab.lab.recordings import Recording, Recordings, collect

HOSTILE = "</script><b>bold & bad</b> <!-- \u2028"


class Letters:
    """A tokenizer of the first 128 characters."""

    template, eos = None, frozenset()

    def encode(self, text, bos=False):
        return [ord(letter) for letter in text]

    def stream(self, special=False):
        return self

    def push(self, token):
        return chr(token)

    def flush(self):
        return ""


class Ticks:
    """A clock that moves on by so much at each reading; the durations are taken in turn."""

    def __init__(self, *steps):
        self.steps, self.now = list(steps), 0.0

    def __call__(self):
        self.now += self.steps[0] if len(self.steps) == 1 else self.steps.pop(0)
        return self.now


@pytest.fixture(scope="module")
def model(tiny):
    """A tiny model in fp32 that reads and writes letters."""
    return dataclasses.replace(random_model(tiny, "cpu", "fp32"), tokenizer=Letters())


@pytest.fixture
def ticking(monkeypatch):
    def set_clock(*steps):
        clock = Ticks(*steps)
        monkeypatch.setattr(replay, "timed", functools.partial(timed, clock=clock))

    return set_clock


@pytest.fixture
def one(model):
    (run,) = replay.record(model, [("Hello there", 5)]).runs
    return run


def notebook(*pages):
    outputs = [{"output_type": "execute_result", "data": {"text/html": p}} for p in pages]
    return {"cells": [{"cell_type": "markdown"}, {"cell_type": "code", "outputs": outputs}]}


def test_a_recording_is_what_happened(model, ticking):
    ticking(0.25)
    (run,) = replay.record(model, [Ask("Hello", 6, "a greeting")]).runs
    assert "".join(run.pieces) == run.prompt == "Hello"
    assert run.label == "a greeting"
    assert len(run.answer) == 6
    assert run.times == (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
    assert run.timeline.tpot == 0.25
    assert run.passes == (1, 2, 3, 4, 5, 6)
    assert (run.prefill_passes, run.decode_passes) == (1, 5)
    assert run.settings["cache"] is True
    assert run.settings["kernels"] == model.table
    assert run.date == run.provenance["date"][:10]
    assert str(run.provenance["threads"]) in run.origin


def test_every_setting_changes_one_thing(model, monkeypatch):
    loaded, batches, generate = [], [], replay.generate

    def load(source, device, dtype):
        loaded.append(dtype)
        other = random_model(model.shape, device, dtype)
        return dataclasses.replace(other, tokenizer=Letters())

    def spy(model, prompts, *rest, **more):
        batches.append((type(more["cache"]).__name__, model.dtype, len(prompts)))
        return generate(model, prompts, *rest, **more)

    monkeypatch.setattr(replay, "load", load)
    monkeypatch.setattr(replay, "generate", spy)
    seen = []
    asks = [("One", 3), ("Another", 4)]
    made = replay.record(model, asks, EVERY, progress=seen.append)
    assert loaded == ["bf16"]  # once, for both requests
    runs = made.runs
    assert [run.prompt for run in runs] == ["One"] * 4 + ["Another"] * 4
    assert sorted(run.id for run in seen) == sorted(run.id for run in runs)
    assert len({run.id for run in runs}) == 8
    manner = [(r.settings["dtype"], r.settings["cache"], r.settings["batch"]) for r in runs[:4]]
    assert manner == [("fp32", True, 1), ("fp32", False, 1), ("fp32", True, 8), ("bf16", True, 1)]
    assert set(batches) == {
        ("KVCache", torch.float32, 1), ("NoCache", torch.float32, 1),
        ("KVCache", torch.float32, 8), ("KVCache", torch.bfloat16, 1),
    }  # fmt: skip
    plain, uncached, beside, _ = runs[:4]
    assert plain.answer == uncached.answer == beside.answer  # fp32: the same arithmetic
    assert plain.passes == uncached.passes == (1, 2, 3)


def test_what_does_not_fit_is_left_out_and_said(model, monkeypatch):
    def load(source, device, dtype):
        raise MemoryError("tiny in bf16 needs 2 GB and 1 GB is free")

    monkeypatch.setattr(replay, "load", load)
    made = replay.record(model, [("One", 2)], EVERY)
    assert [run.settings["dtype"] for run in made.runs] == ["fp32"] * 3
    said = "Not recorded in bf16: tiny in bf16 needs 2 GB and 1 GB is free."
    assert f"<p>{said}</p>" in made.to_html()
    assert said in repr(made + made)


@pytest.mark.parametrize(
    ("loaded", "device", "asked", "run"),
    [
        ("fp32", "cpu", "another", "bf16"),
        ("bf16", "cpu", "another", "fp32"),
        ("fp32", "cuda", "another", "fp16"),  # a T4 has no bf16
        ("fp16", "cuda", "another", "fp32"),
        ("bf16", "cpu", "as loaded", "bf16"),
        ("bf16", "cpu", "fp16", "fp16"),
    ],
)
def test_which_dtype_is_another(loaded, device, asked, run):
    @dataclasses.dataclass
    class Loaded:
        dtype_name: str
        device: torch.device

    assert replay._dtype(Loaded(loaded, torch.device(device)), Setting(dtype=asked)) == run


def test_the_recording_ends_where_the_answer_ends(model, one):
    tokenizer = Letters()
    tokenizer.eos = frozenset({ord(one.answer[1])})
    short = dataclasses.replace(model, tokenizer=tokenizer)
    ends = one.answer.index(one.answer[1]) + 1
    for batch in (1, 8):
        (run,) = replay.record(short, [("Hello there", 5)], [Setting(batch=batch)]).runs
        assert run.answer == one.answer[:ends]
        assert run.passes[-1] == ends


def test_the_round_of_median_length_is_kept(model, ticking):
    warm_up = [1.0] * 3
    rounds = [[0.0, 0.5, 0.5], [0.0, 0.1, 0.1], [0.0, 0.2, 0.4]]
    ticking(*warm_up, *(t for r in rounds for t in r), 9.0)
    (run,) = replay.record(model, [("Hello", 2)], rounds=3).runs
    assert run.times == pytest.approx((0.2, 0.6))


def test_what_cannot_be_recorded_is_refused(model):
    with pytest.raises(ValueError, match="with its tokenizer"):
        replay.record(dataclasses.replace(model, tokenizer=None), [("Hello", 2)])
    with pytest.raises(ValueError, match="rounds=0"):
        replay.record(model, [("Hello", 2)], rounds=0)
    with pytest.raises(ValueError, match="the prompt is empty"):
        replay.record(model, [(" \n", 2)])
    with pytest.raises(ValueError, match="max_tokens=0"):
        replay.record(model, [("Hello", 0)])


def test_a_notebook_gives_back_what_was_recorded(model):
    first = replay.record(model, [(HOSTILE.replace("\u2028", "\t"), 3)])
    second = replay.record(model, [("Hello", 2)])
    both = first + second
    page = both._repr_html_()
    assert page.count("</script>") == 1
    assert "<b>" not in page
    assert "<!--" not in page
    assert collect(notebook("<p>other</p>", page)) == list(both.runs)
    lines = [line + "\n" for line in page.split("\n")]
    assert collect(notebook(lines, second.to_html())) == [*both.runs, *second.runs]
    assert "Hello" in repr(second)
    assert second.runs[0].origin in page


def test_whatever_text_the_page_is_safe(one):
    bad = dataclasses.replace(one, label=HOSTILE, prompt=HOSTILE, answer=(HOSTILE,) * 5)
    page = Recordings((bad,)).to_html()
    assert page.count("<script") == page.count("</script>") == 1
    assert "<b>" not in page
    assert collect(notebook(page)) == [bad]


FAULTS = {
    "a time moved back": lambda d: d["times"].__setitem__(2, d["times"][0] / 2),
    "a time left out": lambda d: d["times"].pop(),
    "a time before sending": lambda d: d["times"].__setitem__(0, -0.1),
    "at once": lambda d: d["times"].__setitem__(0, 0.0),
    "a time that is none": lambda d: d["times"].__setitem__(4, math.inf),
    "a time in words": lambda d: d["times"].__setitem__(0, "soon"),
    "a token added": lambda d: d["answer"].append("!"),
    "a token that is a number": lambda d: d["answer"].__setitem__(0, 7),
    "no prompt": lambda d: d["pieces"].clear(),
    "passes that stand still": lambda d: d["passes"].__setitem__(1, 1),
    "passes that are fractions": lambda d: d["passes"].__setitem__(0, 0.5),
    "another count of passes": lambda d: d["passes"].__setitem__(4, 9),
    "another prefill count": lambda d: d.__setitem__("prefill_passes", 2),
    "another decode count": lambda d: d.__setitem__("decode_passes", 5),
    "a cache in words": lambda d: d["settings"].__setitem__("cache", "yes"),
    "no batch": lambda d: d["settings"].pop("batch"),
    "no machine": lambda d: d["provenance"].pop("cpu"),
    "no date": lambda d: d["provenance"].pop("date"),
    "no times": lambda d: d.pop("times"),
    "no passes counted": lambda d: d.pop("decode_passes"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_hand_changed_is_found_out(one, name):
    data = json.loads(Recordings((one,)).to_json())["recordings"][0]
    assert Recording.from_dict(data) == one
    changed = copy.deepcopy(data)
    FAULTS[name](changed)
    with pytest.raises(ValueError, match=r"no recording|do not follow"):
        Recording.from_dict(changed)


def test_a_file_gives_back_what_was_saved(one, tmp_path):
    file = replay.save(Recordings((one,)), tmp_path / "sub" / "runs.json")
    assert recordings.read(file) == [one]
    changed = json.loads(file.read_text(encoding="utf-8"))
    changed["recordings"][0]["times"][0] = 99.0
    file.write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(ValueError, match=r"^runs\.json: .*go backwards"):
        recordings.read(file)
    file.write_text('{"measurements": []}', encoding="utf-8")
    assert recordings.read(file) == []
    file.write_text("[1, 2]", encoding="utf-8")
    assert recordings.read(file) == []
    file.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"^runs\.json: "):
        recordings.read(file)


def test_a_long_prompt_has_a_short_name(model):
    long = "one two three four five six seven eight nine ten eleven"
    (run,) = replay.record(model, [(long, 1)], PLAIN).runs
    assert run.label == "one two three four five six seven eight nine …"
    (again,) = replay.record(model, [(long, 1)], PLAIN).runs
    assert again.id == run.id
    (other,) = replay.record(model, [(long + "!", 1)], PLAIN).runs
    assert other.id != run.id


def test_tokens_joined_are_the_text_the_model_read(smollm2_path):
    tokenizer = Tokenizer.from_gguf(gguf.read_header(smollm2_path).metadata)
    talk = [{"role": "user", "content": "Où est le 🙂?"}]
    ids = tokenizer.chat(talk)
    pieces = replay._text(tokenizer, ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == tokenizer.chat_text(talk)
    half = replay._text(tokenizer, tokenizer.encode("🙂")[:-1])
    assert half[-1] == "\ufffd"  # what was never finished shows as that
