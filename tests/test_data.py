"""The accessor of the data files: the same names in a checkout and in a wheel, errors that help."""

from __future__ import annotations

import hashlib

import pytest

from inferlab import data


def planted(tmp_path, monkeypatch, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(data, "folder", lambda: tmp_path)


def test_names_open(tmp_path, monkeypatch):
    planted(tmp_path, monkeypatch, "models.csv", "name,layers\nsmall,30\n\nlarge,80\n")
    assert data.names() == ("models.csv",)
    assert data.path("models.csv").read_text(encoding="utf-8").startswith("name,")
    assert data.read_csv("models.csv") == [
        {"name": "small", "layers": "30"},
        {"name": "large", "layers": "80"},
    ]


def test_unknown_name_lists_the_near_ones(tmp_path, monkeypatch):
    planted(tmp_path, monkeypatch, "models.csv", "name\n")
    with pytest.raises(FileNotFoundError, match=r"'model\.csv'.*models\.csv"):
        data.path("model.csv")


def test_a_name_cannot_leave_the_folder(tmp_path, monkeypatch):
    outside = tmp_path / "secret.csv"
    outside.write_text("x\n", encoding="utf-8")
    inside = tmp_path / "data"
    inside.mkdir()
    monkeypatch.setattr(data, "folder", lambda: inside)
    with pytest.raises(FileNotFoundError):
        data.path("../secret.csv")


@pytest.mark.parametrize("row", ["small", "small,30,extra"])
def test_a_row_of_another_width_is_refused(tmp_path, monkeypatch, row):
    planted(tmp_path, monkeypatch, "models.csv", f"name,layers\nfine,1\n{row}\n")
    with pytest.raises(ValueError, match=r"models\.csv, line 3: the header has 2 columns"):
        data.read_csv("models.csv")


def test_the_cache_folder_follows_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "deep" / "cache"))
    assert data.cache_dir() == tmp_path / "deep" / "cache"
    assert data.cache_dir().is_dir()


def test_sha256_is_of_the_bytes(tmp_path):
    file = tmp_path / "x.bin"
    file.write_bytes(b"abc")
    assert data.sha256(file) == hashlib.sha256(b"abc").hexdigest()
