"""Memory traffic from planted counters, and the system call on one the kernel really has."""

import os
import platform
import struct

import pytest

from inferlab.lab import dram as meter
from inferlab.lab.counters import Unavailable
from inferlab.lab.dram import MemoryCounter, config, dram, memory_counter, perf_open

FORMATS = {
    "event": "config:0-7", "umask": "config:8-15", "wide": "config:0-7,32-35", "far": "config1:0-5",
}  # fmt: skip


@pytest.fixture
def unit(tmp_path):
    return imc(tmp_path, "uncore_imc_0")


def imc(root, name, names=("cas_count_read", "cas_count_write"), cpus="0,28", scale="6.1e-5"):
    folder = root / name
    for part in ("events", "format"):
        (folder / part).mkdir(parents=True)
    for field, place in FORMATS.items():
        (folder / "format" / field).write_text(place + "\n")
    for index, event in enumerate(names):
        (folder / "events" / event).write_text(f"event=0x04,umask=0x{3 + 9 * index:02x}\n")
        (folder / "events" / f"{event}.scale").write_text(scale + "\n")
        (folder / "events" / f"{event}.unit").write_text("MiB\n")
    (folder / "type").write_text("17\n")
    (folder / "cpumask").write_text(cpus + "\n")
    return folder


def test_the_config_word_puts_every_field_into_its_bits(unit):
    assert config(unit, "event=0x04,umask=0x03") == 0x0304
    assert config(unit, "wide=0x5ab") == 0x5_0000_00AB
    with pytest.raises(ValueError, match="only config"):
        config(unit, "far=0x01")


class Files:
    """Counters as real files that hold what was planted, so that they are read and closed."""

    def __init__(self, folder):
        self.folder, self.opened = folder, []

    def __call__(self, kind, word, cpu):
        self.opened.append((kind, word, cpu))
        path = self.folder / f"counter{len(self.opened)}"
        path.write_bytes(struct.pack("=Q", 100 * len(self.opened)))
        return os.open(path, os.O_RDONLY)


def test_every_controller_and_every_socket_is_counted(tmp_path):
    imc(tmp_path, "uncore_imc_0")
    imc(tmp_path, "uncore_imc_1", cpus="0-1")
    imc(tmp_path, "uncore_imc_free_running_0", ("data_read", "data_write"))
    files = Files(tmp_path)
    with memory_counter("cpu", tmp_path, files) as counter:
        read, written = counter.bytes()
    opened = [(17, 0x0304, 0), (17, 0x0304, 28), (17, 0x0C04, 0), (17, 0x0C04, 28)]
    assert files.opened == opened + [(17, w, c) for w in (0x0304, 0x0C04) for c in (0, 1)]
    scale = 6.1e-5 * 2**20
    assert read == pytest.approx((100 + 200 + 500 + 600) * scale)
    assert written == pytest.approx((300 + 400 + 700 + 800) * scale)
    with pytest.raises(OSError, match="Bad file"):
        counter.bytes()


def test_a_client_has_free_running_counters(tmp_path):
    imc(tmp_path, "uncore_imc_free_running_0", ("data_read", "data_write"), cpus="0")
    with memory_counter("cpu", tmp_path, Files(tmp_path)) as counter:
        assert "data_read" in counter.name


def test_what_cannot_be_read_is_said(tmp_path):
    assert "no counters of a memory controller" in str(memory_counter("cpu", tmp_path))
    assert "ncu" in str(memory_counter("cuda"))
    folder = imc(tmp_path, "uncore_imc_0")

    def refused(kind, word, cpu):
        raise PermissionError(13, "Permission denied")

    assert "perf_event_paranoid" in str(memory_counter("cpu", tmp_path, refused))
    (folder / "events" / "cas_count_read.unit").write_text("Joules")
    assert "not in MiB" in str(memory_counter("cpu", tmp_path, refused))


def test_what_was_opened_is_closed_when_the_next_is_refused(tmp_path):
    imc(tmp_path, "uncore_imc_0")
    files, handles = Files(tmp_path), []

    def once(kind, word, cpu):
        if handles:
            raise OSError(24, "Too many open files")
        handles.append(files(kind, word, cpu))
        return handles[0]

    assert isinstance(memory_counter("cpu", tmp_path, once), Unavailable)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(handles[0])


class Planted(MemoryCounter):
    """Its handles are keys of a table, not files."""

    def __exit__(self, *_):
        pass


def test_traffic_is_bytes_per_call(clock):
    counts = {1: 0, 2: 0}
    counter = Planted("planted", [(1, 64.0)], [(2, 64.0)], counts.__getitem__)
    calls = clock.work(0.1)

    def fn():
        calls()
        counts[1] += 1000
        counts[2] += 10

    found = dram(fn, seconds=1.0, counter=counter, clock=clock)
    assert found.read.samples == (64000.0,) * 3
    assert found.written.value == 640.0
    assert (found.read.unit, found.read.conditions["counter"]) == ("B", "planted")
    none = Unavailable("it is a test")
    assert dram(fn, counter=none) is none
    with pytest.raises(ValueError, match="windows"):
        dram(fn, windows=0)


@pytest.mark.skipif(platform.system() != "Linux", reason="perf_event_open is a call of Linux")
def test_the_system_call_opens_a_counter_that_counts():
    clock_of_cpu = (1, 0)  # PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, in nanoseconds
    try:
        handle = perf_open(*clock_of_cpu, 0)
    except OSError as fault:
        pytest.skip(f"counters of a whole CPU are not for this user: {fault}")
    first, second = meter._fetch(handle), meter._fetch(handle)
    os.close(handle)
    assert 0 < first <= second


def test_another_system_is_an_error_in_words(monkeypatch):
    monkeypatch.setattr(meter.platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match="x86_64 and aarch64"):
        perf_open(1, 0, 0)
