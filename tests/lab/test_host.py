"""The machine's facts: read, never guessed, and nothing in them that names a person or a host."""

import getpass
import json
import platform
import re
import subprocess

import pytest
import torch

from inferlab.lab import host

FACTS = {
    "cpu", "cores", "memory", "last_level_cache", "os", "python", "torch", "torch_build", "threads",
}  # fmt: skip


def test_the_facts_are_plain_json_and_complete():
    facts = host.machine()
    assert set(facts) == FACTS
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cores"] >= 1
    assert facts["memory"] > 2**28


def test_provenance_adds_when_and_which_code():
    facts = host.provenance()
    assert set(facts) == FACTS | {"date", "load", "inferlab", "commit"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", facts["date"])
    assert re.fullmatch(r"unknown|[0-9a-f]{7,}(-dirty)?", facts["commit"])


def test_threads_are_those_in_force():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert host.machine()["threads"] == 1
    finally:
        torch.set_num_threads(before)


def test_no_host_user_or_path_is_in_a_record():
    values = [str(v) for v in host.provenance().values()]
    for private in (platform.node(), getpass.getuser(), "/home", "/root", "/tmp", "/Users"):
        assert not any(private and private in value for value in values), private


def _cache(root, cpu, index, level, size, shared, kind="Unified"):
    folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    content = {"level": level, "size": size, "shared_cpu_list": shared, "type": kind}
    for name, value in content.items():
        (folder / name).write_text(f"{value}\n")


def test_each_last_level_cache_counts_once(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "_usable_cpus", lambda: [0, 1, 2])
    for cpu, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")):
        _cache(tmp_path, cpu, 0, 1, "32K", cpu, "Data")
        _cache(tmp_path, cpu, 1, 1, "64M", cpu, "Instruction")
        _cache(tmp_path, cpu, 2, 2, "1024K", cpu)
        _cache(tmp_path, cpu, 3, 3, "32768K", shared)
    assert host.last_level_cache(tmp_path) == 2 * 32 * 2**20


def test_without_a_third_level_the_second_is_the_last(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "_usable_cpus", lambda: [0, 1])
    _cache(tmp_path, 0, 2, 2, "1M", 0)
    _cache(tmp_path, 1, 2, 2, "1M", 1)
    assert host.last_level_cache(tmp_path) == 2 * 2**20


def test_a_system_that_does_not_tell_is_not_guessed_at(tmp_path):
    assert host.last_level_cache(tmp_path) is None
    assert host.cpu_model(tmp_path / "missing") == "unknown"


@pytest.mark.skipif(platform.system() == "Darwin", reason="macOS is asked by sysctl")
def test_the_processor_names_itself(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nflags\t: x\n")
    assert host.cpu_model(file) == "Some CPU @ 2.00GHz"
    file.write_text("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n")
    assert host.cpu_model(file) == "Arm implementer 0x41 part 0xd40"


def _git(folder, *words):
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(("git", "-C", folder, *identity, *words), check=True, capture_output=True)


def test_the_commit_of_a_checkout_and_its_dirt(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("a = 1\n")
    _git(tmp_path, "init", "-q")
    assert host.commit(file) == "unknown"  # not tracked: installed into somebody's repository
    _git(tmp_path, "add", "module.py")
    _git(tmp_path, "commit", "-q", "-m", "first")
    clean = host.commit(file)
    assert re.fullmatch(r"[0-9a-f]{7,}", clean)
    (tmp_path / "new.txt").write_text("untracked files are no change\n")
    assert host.commit(file) == clean
    file.write_text("a = 2\n")
    assert host.commit(file) == f"{clean}-dirty"


def test_a_quota_below_the_affinity_limits_the_cores(monkeypatch):
    monkeypatch.setattr(host, "_usable_cpus", lambda: list(range(8)))
    for text, cores in (("150000 100000", 2), ("max 100000", 8), ("", 8), ("9900000 100000", 8)):
        files = {"cpu.max": text}
        monkeypatch.setattr(host, "_read", lambda file, files=files: files.get(file.name, ""))
        assert host.cores() == cores
    files = {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}  # control groups 1
    monkeypatch.setattr(host, "_read", lambda file: files.get(file.name, ""))
    assert host.cores() == 1
