"""Measurements: derived from their samples, saved whole or not at all, compared with care."""

import errno
import json
import os

import pytest

from inferlab.lab import records
from inferlab.lab.records import Measurement, compare, load, save

WHERE = {"cpu": "test"}


def _measured(samples, name="step", unit="s", **conditions):
    return Measurement.from_samples(name, samples, unit, conditions, WHERE)


def test_median_quartiles_and_extremes_follow_from_the_samples():
    m = _measured([5, 1, 4, 2, 3])
    assert (m.value, m.q25, m.q75, m.minimum, m.maximum, m.n) == (3, 2, 4, 1, 5, 5)
    assert m.samples == (5, 1, 4, 2, 3)
    assert m.spread == pytest.approx(2 / 3)


def test_saved_and_loaded_records_are_equal(tmp_path):
    made = [_measured([1.5, 2.5], shape=(1, 2), dtype="bf16"), _measured([3.0], "other")]
    assert load(save(made, tmp_path / "deep" / "m.json")) == tuple(made)
    assert load(made[0].save(tmp_path / "one.json")) == (made[0],)


@pytest.mark.parametrize("key", ["value", "n", "q25", "q75", "minimum", "maximum"])
def test_a_number_changed_by_hand_is_found(tmp_path, key):
    file = save([_measured([1.0, 2.0, 3.0])], tmp_path / "m.json")
    content = json.loads(file.read_text())
    content["records"][0][key] *= 1.001
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"the {key} of .* changed by hand"):
        load(file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "no measurements"),
        ('{"schema": 9}', "schema 1"),
        ('{"schema": 1, "records": [{}]}', "no saved measurement"),
        ('{"schema": 1, "records": [3]}', "no saved measurement"),
    ],
)
def test_a_file_that_is_none_is_refused_in_words(tmp_path, text, says):
    file = tmp_path / "m.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=says):
        load(file)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    file = save([_measured([1.0])], tmp_path / "m.json")
    before = file.read_text()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space"):
        save([_measured([2.0])], file)
    assert file.read_text() == before
    assert os.listdir(tmp_path) == ["m.json"]


def test_what_cannot_be_saved_is_refused_when_it_is_measured():
    with pytest.raises(TypeError):
        _measured([1.0], dtype=object())
    with pytest.raises(ValueError, match="finite"):
        _measured([float("nan")])
    with pytest.raises(ValueError, match="no samples"):
        _measured([])


def test_compare_gives_the_ratio_and_what_differs():
    first = _measured([1.0] * 9, batch=1, dtype="bf16")
    second = _measured([2.0] * 9, batch=8, dtype="bf16")
    found = compare(first, second)
    assert found.ratio.value == 2.0
    assert found.differ
    assert found.conditions == {"batch": (1, 8)}
    assert found.provenance == {}
    assert not compare(first, first).differ


def test_compare_refuses_different_quantities():
    with pytest.raises(ValueError, match="not the same quantity"):
        compare(_measured([1.0] * 9), _measured([1.0] * 9, unit="B/s"))


def test_provenance_is_read_unless_given():
    made = Measurement.from_samples("x", [1.0], "s")
    assert made.provenance.keys() == records.provenance().keys()


def test_a_record_prints_median_quartiles_and_n():
    assert str(_measured([0.01, 0.02, 0.03])) == (
        "step: 20.0 ms (quartiles 15.0 ms to 25.0 ms, n = 3)"
    )
