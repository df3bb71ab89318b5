"""tune() changes speed alone, keeps the default where nothing is gained, and remembers."""

import json
import os
from dataclasses import replace

import pytest
import torch

from inferlab.engine import kernels
from inferlab.engine.generate import prefill
from inferlab.engine.load import random_model
from inferlab.engine.model import Model
from inferlab.lab import tuning
from inferlab.lab.tuning import tune, tuned

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def model(tiny):
    return random_model(tiny, device="cpu", dtype="fp32")


def test_the_table_is_what_pick_reads_and_the_text_stays_the_same(tiny, model):
    table = tune(model)
    assert kernels.pick(table, model.device, model.dtype) == table
    plain = {name: model.weights[name] for name in model.weights}
    other = Model.create(tiny, plain, table=table)
    prompt = list(range(40))
    before = prefill(model, model.cache(max_tokens=64), prompt)
    after = prefill(other, other.cache(max_tokens=64), prompt)
    assert torch.allclose(before, after, rtol=1e-4, atol=1e-5)


def test_the_model_itself_is_left_as_it_was(model):
    before = {name: model.weights[name].clone() for name in model.weights}
    tune(model, save=False)
    assert all(torch.equal(before[name], model.weights[name]) for name in before)


def test_the_table_is_remembered_for_this_shape_dtype_and_machine(tiny, model, cache, monkeypatch):
    assert tuned(tiny, "cpu", torch.float32) is None
    table = tune(model)
    assert tuned(tiny, "cpu", torch.float32) == table
    assert tuned(tiny, "cpu", torch.bfloat16) is None
    assert tuned(replace(tiny, d_ff=128), "cpu", torch.float32) is None
    (file,) = cache.iterdir()
    assert file.name.startswith("tune-")
    content = json.loads(file.read_text())
    assert next(iter(content["tables"].values()))["seconds"]
    monkeypatch.setattr(tuning.host, "machine", lambda device: {"cpu": "another"})
    assert tuned(tiny, "cpu", torch.float32) is None


def test_not_saved_where_not_asked(tiny, model, cache):
    tune(model, save=False)
    assert os.listdir(cache) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', '{"schema": 2, "tables": {}}'])
def test_a_damaged_file_counts_as_none_and_is_replaced(tiny, model, cache, text):
    file = tuning._file("cpu")
    file.write_text(text)
    assert tuned(tiny, "cpu", torch.float32) is None
    assert tune(model) == tuned(tiny, "cpu", torch.float32)


def test_other_tables_of_the_file_are_kept(tiny, model):
    tune(model)
    narrower = replace(tiny, d_ff=64)
    tune(random_model(narrower, device="cpu", dtype="fp32"))
    assert tuned(tiny, "cpu", torch.float32)
    assert tuned(narrower, "cpu", torch.float32)


def test_the_default_stays_unless_another_is_faster_by_more_than_the_noise():
    usual = (1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 1.0, 1.0)
    clearly = tuple(t * 0.8 for t in usual)
    barely = tuple(t * 0.99 for t in usual)
    noisy = (0.5, 1.5, 0.6, 1.4, 0.7, 1.3, 0.5, 1.2)
    choose = tuning._choose
    assert choose({"plain": usual, "packed": clearly}, "plain")[0] == "packed"
    assert choose({"plain": usual, "packed": barely}, "plain")[0] == "plain"
    assert choose({"plain": usual, "packed": noisy}, "plain")[0] == "plain"
    assert choose({"plain": usual}, "plain")[0] == "plain"
    fastest = tuple(t * 0.5 for t in usual)
    assert choose({"plain": usual, "a": clearly, "b": fastest}, "plain")[0] == "b"


def test_a_hopeless_twin_is_tried_three_times_and_no_more(clock):
    runs = {
        "plain": clock.work(1.0, name="plain"),
        "native": clock.work(10.0, name="native"),
        "packed": clock.work(0.9, name="packed"),
    }
    times = tuning._contest(runs, "plain", "cpu", clock)
    assert set(times) == {"plain", "packed"}
    assert clock.calls.count("native") == 3
    slow_default = {"plain": clock.work(10.0), "packed": clock.work(1.0)}
    assert set(tuning._contest(slow_default, "plain", "cpu", clock)) == {"plain", "packed"}
