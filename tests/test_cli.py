"""The command line: what it prints, and the status it ends with."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from inferlab import __main__ as cli
from inferlab import doctor


def call(*words, cwd=None):
    command = [sys.executable, "-m", "inferlab", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_doctor_names_everything_and_ends_well():
    result = CliRunner().invoke(cli.app, ["doctor", "--json"])
    findings = json.loads(result.stdout)
    names = [finding["name"] for finding in findings]
    wanted = "Python Machine Cores Memory Disk torch Device Model Book Kernel Browser git"
    assert names == wanted.split()
    broken = [finding for finding in findings if finding["state"] == "broken"]
    assert result.exit_code == (1 if broken else 0)
    assert all(finding["remedy"] for finding in findings if finding["state"] != "fine")


def test_doctor_says_what_to_mend_and_fails(monkeypatch):
    def small_disk(place):
        return type("Usage", (), {"free": 10_000_000})

    monkeypatch.setattr(doctor.shutil, "disk_usage", small_disk)
    result = CliRunner().invoke(cli.app, ["doctor"])
    assert result.exit_code == 1
    assert "10.0 MB free" in result.stdout
    assert "INFERLAB_CACHE" in result.stdout
    assert "Mend what is marked broken" in result.stdout


def test_doctor_survives_a_broken_installation(monkeypatch):
    def broken():
        raise ImportError("no module named torch")

    monkeypatch.setitem(doctor.CHECKS, "torch", broken)
    found = {finding.name: finding for finding in doctor.examine()}
    assert found["torch"].state == "broken"
    assert "no module named torch" in found["torch"].value
    assert "make book" in found["torch"].remedy


@pytest.mark.parametrize("version", [(3, 10, 4), (3, 14, 0)])
def test_doctor_refuses_other_pythons(monkeypatch, version):
    monkeypatch.setattr(doctor.sys, "version_info", version)
    (finding,) = doctor._python()
    assert finding.state == "broken"
    assert "3.11 to 3.13" in finding.remedy


def test_wrong_usage_is_status_2(tmp_path):
    assert call("run", "--scale", "huge").returncode == 2
    assert call().returncode == 2
    outside = call("run", cwd=tmp_path)
    assert (outside.returncode, outside.stdout) == (2, "")
    assert outside.stderr.startswith("no _toc.yml in")
    assert "Traceback" not in outside.stderr


def test_a_book_that_cannot_be_built_is_status_1(tmp_path):
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: intro\n")
    done = call("book", "--root", str(tmp_path))
    assert done.returncode == 1
    assert "there is no intro.ipynb or intro.md" in done.stderr
