"""The standard set: planned, measured on a tiny model, written in one piece, checked when read."""

import copy
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from inferlab import __main__ as cli
from inferlab import data
from inferlab.engine import random_model
from inferlab.lab import ceilings, host, probes, rates, standard
from inferlab.lab import clock as clocks
from inferlab.lab.experiments import sweeps
from inferlab.theory import counts

POINTS = [
    sweeps.Point("tiny", "first", "decode", 1, 16),
    sweeps.Point("tiny", "first", "decode", 2, 16),
    sweeps.Point("tiny", "first", "prefill", 1, 0, 8),
    sweeps.Point("tiny", "first", "prefill", 1, 0, 16),
    sweeps.Point("tiny", "second", "decode", 1, 16),
    sweeps.Point("huge", "first", "decode", 1, 16),
]


plan = sweeps.plan  # as it is; `small` puts another in its place


@pytest.fixture(scope="module")
def small(tiny):
    """Everything that takes time made small: probes of a megabyte, a tiny model, six points."""

    def model(name, device, dtype):
        if name == "huge":
            raise MemoryError("huge needs 1 TB and 8 GB are free")
        return random_model(tiny, device, dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "last_level_cache", lambda: 2**18)
        patch.setattr(probes, "_FLOOR", {"cpu": 2**20})
        patch.setattr(rates, "_SIZES", {"cpu": (32, 64)})
        patch.setattr(ceilings, "_SECONDS", {"read": 0.02, "product": 0.02})
        patch.setattr(sweeps, "_SAMPLED", 0.0)
        patch.setattr(sweeps, "_model", model)
        patch.setattr(sweeps, "plan", lambda scale, model: POINTS)
        yield


@pytest.fixture(scope="module")
def made(small):
    with clocks.threads(1):
        seen = []
        found = sweeps.measure("tiny", "cpu", "ci", lambda *what: seen.append(what))
        return found, seen


def test_what_was_planned_is_measured_and_the_rest_says_why(made):
    found, seen = made
    assert (len(found.decode), len(found.prefill)) == (3, 2)
    assert found.left_out == {str(POINTS[-1]): "huge needs 1 TB and 8 GB are free"}
    assert [done for done, _, _ in seen] == [0, 0, 1, 2, 3, 4, 5, 6]
    assert seen[-1] == (6, 6, "done")
    assert all(isinstance(v, str) or v for v in found.meters.values())
    assert set(found.meters) == {"energy", "memory traffic"}


def test_each_step_stands_beside_its_own_ceiling(made, tiny):
    found, _ = made
    first = short = found.decode[0].step.conditions["dtype"]
    work = counts.step(tiny, [counts.Sequence(1, 16)] * 2, weight_dtype=short, kv_dtype=short)
    (pair,) = found.select("decode", batch=2)
    assert pair.step_work == work.bytes_streamed
    assert pair.ceiling.conditions["probe"].startswith("read")
    (pair,) = found.select("prefill", new=16)
    work = counts.step(tiny, [counts.Sequence(16, 0)], weight_dtype=short, kv_dtype=short)
    assert pair.step_work == work.flops
    assert first in pair.ceiling.conditions["probe"]
    assert pair.efficiency().value > 0
    (pair,) = [p for p in found.decode if p.step.conditions["dtype"] != first]
    assert pair.step.conditions["weights"] == "random"
    with pytest.raises(ValueError, match="is chosen by"):
        found.select("decode", colour="red")


def test_it_is_written_in_one_piece_and_read_back_equal(made, tmp_path):
    found, _ = made
    place = found.save(tmp_path / "deep" / "x.json")
    assert standard.load(place) == found
    assert [f.name for f in place.parent.iterdir()] == ["x.json"]
    assert found.id.endswith(found.calibration.date[:10])
    assert "1-threads" in found.id


def test_a_point_on_fewer_threads_than_the_ceilings_is_told(made):
    found, _ = made
    assert found.disturbed == 0
    wide = copy.deepcopy(found.to_dict())
    for record in wide["calibration"]["records"]:
        record["provenance"]["threads"] = 2
    assert standard.Standard.from_dict(wide).disturbed == 5


def test_an_interrupted_writing_leaves_the_old_file(made, tmp_path, monkeypatch):
    found, _ = made
    place = tmp_path / "x.json"
    place.write_text("old")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(standard.write_atomically.__globals__["os"], "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        found.save(place)
    assert place.read_text() == "old"
    assert [f.name for f in tmp_path.iterdir()] == ["x.json"]


def _faults():
    def cut(d):
        del d["decode"]

    def other_kind(d):
        d["kind"] = "shopping list"

    def short(d):
        d["prefill"] = d["prefill"][:1]

    def twice(d):
        d["decode"].append(d["decode"][0])

    def mixed_phase(d):
        d["decode"].append(d["prefill"][0])

    def no_batch(d):
        del d["decode"][0]["step"]["conditions"]["batch"]

    def other_machine(d):
        d["decode"][1]["step"]["provenance"]["cpu"] = "abacus"

    def no_date(d):
        del d["decode"][1]["ceiling"]["provenance"]["date"]

    def no_work(d):
        d["prefill"][0]["step_work"] = None

    def edited(d):
        d["decode"][0]["step"]["samples"][0] *= 2
        d["decode"][0]["step"]["maximum"] *= 3

    def no_ceiling(d):
        d["calibration"]["records"] = d["calibration"]["records"][1:]

    said = {
        cut: "not whole: KeyError", other_kind: "no inferlab standard set", short: "1 points",
        twice: "twice", mixed_phase: "step of prefill is among decode", no_batch: "its batch",
        other_machine: "mixed: cpu", no_date: "its date", no_work: "its work",
        edited: "changed by hand", no_ceiling: "lacks read bandwidth",
    }  # fmt: skip
    return [pytest.param(fault, words, id=fault.__name__) for fault, words in said.items()]


@pytest.mark.parametrize(("fault", "words"), _faults())
def test_a_file_that_is_not_right_is_refused(made, tmp_path, fault, words):
    content = copy.deepcopy(made[0].to_dict())
    fault(content)
    place = tmp_path / "x.json"
    place.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"x.json: .*{words}"):
        standard.load(place)


def test_a_file_that_is_no_json_is_refused(tmp_path):
    place = tmp_path / "x.json"
    place.write_text('{"kind":')
    with pytest.raises(ValueError, match="is not JSON"):
        standard.load(place)


def test_no_point_is_begun_after_the_limit(small, made, clock, monkeypatch):
    pair = made[0].decode[0]
    monkeypatch.setattr(sweeps, "_paired", lambda *_: clock.work(100.0)() or pair)
    monkeypatch.setattr(sweeps, "_meters", lambda *_: {"energy": "no"})
    found = sweeps.measure("tiny", "cpu", "ci", limit=250.0, clock=clock)
    assert (len(found.decode), len(found.prefill)) == (2, 1)
    assert set(found.left_out) == {str(p) for p in POINTS[3:]}
    assert "250 seconds" in found.left_out[str(POINTS[-1])]


@pytest.mark.parametrize("scale", ["ci", "laptop", "gpu"])
def test_every_scale_sweeps_both_phases_without_repeating_itself(scale):
    points = plan(scale)
    assert len(set(points)) == len(points)
    ours = [p for p in points if p.model == "smollm2-135m"]
    assert len({p.new for p in ours if p.phase == "prefill"}) >= 2
    assert len({p.context for p in ours if p.phase == "decode"}) >= 2
    assert len({p.batch for p in ours if p.phase == "decode"}) >= 2
    if scale != "ci":
        assert len({p.model for p in points}) >= 3
        assert {p.dtype for p in points} == {"first", "second"}


def test_another_scale_is_refused():
    with pytest.raises(ValueError, match="auto, ci, laptop and gpu"):
        plan("huge")


def test_a_step_leaves_its_cache_as_it_was(tiny):
    model = random_model(tiny, "cpu", "fp32")
    for point in (POINTS[1], POINTS[3]):
        step = sweeps._step(model, point)
        first, second = step(), step()
        assert first is None
        assert second is None
        inside = [cell.cell_contents for cell in step.__closure__]
        (cache,) = [it for it in inside if hasattr(it, "nbytes_used")]
        assert cache.lengths == [17] * 2 if point.phase == "decode" else [16]


def test_the_commands(small, made, tmp_path, monkeypatch):
    call = CliRunner().invoke
    place = tmp_path / "c.json"
    with clocks.threads(1):
        done = call(cli.app, ["calibrate", "--device", "cpu", "--json", "--out", str(place)])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads(place.read_text())
    assert call(cli.app, ["calibrate", "--device", "abacus"]).exit_code == 1
    monkeypatch.setattr(sweeps, "measure", lambda *_: made[0])
    done = call(cli.app, ["measure", "--scale", "ci", "--out", str(tmp_path / "m.json")])
    assert done.exit_code == 0, done.output
    assert "5 points" in done.stdout
    assert standard.load(tmp_path / "m.json") == made[0]


def test_ctrl_c_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeps, "measure", interrupted)
    done = CliRunner().invoke(cli.app, ["measure", "--out", str(tmp_path / "m.json")])
    assert done.exit_code == 130
    assert list(tmp_path.iterdir()) == []


def test_the_id_names_machine_and_day(made):
    records = made[0].calibration.records
    where = {**records[0].provenance, "accelerator": "NVIDIA L4 (x)", "date": "2026-05-04T1"}
    first = replace(records[0], provenance=where)
    assert standard.name(ceilings.Calibration("cuda", (first,))) == "nvidia-l4-x-2026-05-04"


RECORDED = sorted((data.folder() / "measurements").glob("*.json"))


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_what_is_kept_of_real_machines_is_whole_and_was_undisturbed(file):
    found = standard.load(file)
    assert found.id == file.stem
    assert (found.disturbed, found.left_out) == (0, {})
    assert found.seconds <= 240
    commits = {pair.step.provenance["commit"] for pair in (*found.decode, *found.prefill)}
    assert not [commit for commit in commits if commit.endswith("-dirty")]
    assert all(0 < pair.efficiency().value < 1 for pair in (*found.decode, *found.prefill))
