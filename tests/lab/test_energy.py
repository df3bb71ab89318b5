"""Energy from planted counters: what is added up, what wraps around, what is refused and why."""

import pytest
import torch

from inferlab.lab import energy as meter
from inferlab.lab.counters import Unavailable
from inferlab.lab.energy import Nvml, Rapl, energy, nvml, rapl


def zone(root, name, kind, joules, range_uj=262143328850):
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(kind + "\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    set_joules(folder, joules)
    return folder


def set_joules(folder, joules):
    (folder / "energy_uj").write_text(f"{round(joules * 1e6)}\n")


def test_packages_and_their_memory_are_added_and_nothing_twice(tmp_path):
    kinds = {
        "intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram",
        "intel-rapl:1": "package-1", "intel-rapl:2": "psys", "intel-rapl-mmio:0": "package-0",
    }  # fmt: skip
    zones = {name: zone(tmp_path, name, kind, 10.0) for name, kind in kinds.items()}
    counter = rapl(tmp_path)
    assert counter.name == "RAPL (package-0, dram, package-1)"
    assert counter.joules() == 0
    for folder in zones.values():
        set_joules(folder, 11.0)
    assert counter.joules() == pytest.approx(3.0)


def test_a_counter_that_comes_around_goes_on(tmp_path):
    package = zone(tmp_path, "intel-rapl:0", "package-0", 95.0, range_uj=100_000_000)
    counter = Rapl([package])
    found = []
    for joules in (99.0, 3.0, 50.0, 2.0):  # around twice: 4, 4, 47 and 52 J
        set_joules(package, joules)
        found.append(counter.joules())
    assert found == pytest.approx([4.0, 8.0, 55.0, 107.0])


def test_planted_fault_without_the_range_energy_would_be_lost(tmp_path):
    package = zone(tmp_path, "intel-rapl:0", "package-0", 99.0, range_uj=100_000_000)
    counter = Rapl([package])
    counter._ranges = [0]
    set_joules(package, 3.0)
    assert counter.joules() < 0


def test_no_zones_no_permission_no_number(tmp_path, monkeypatch):
    assert "no RAPL zones" in str(rapl(tmp_path / "missing"))
    package = zone(tmp_path, "intel-rapl:0", "package-0", 1.0)
    (package / "energy_uj").write_text("?")
    assert "cannot be read (ValueError)" in str(rapl(tmp_path))

    def refuse(file):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(meter, "_number", refuse)
    found = rapl(tmp_path)
    assert isinstance(found, Unavailable)
    assert "chmod" in str(found)


class Counter:
    """A counter of `watts` that is written every `tick` seconds of the test's clock."""

    name = "planted"

    def __init__(self, clock, watts, tick):
        self.clock, self.watts, self.tick = clock, watts, tick

    def joules(self):
        return self.watts * (self.clock.now // self.tick) * self.tick


def test_energy_is_power_times_time_however_seldom_it_is_written(clock):
    for tick in (0.1, 0.7):
        counter = Counter(clock, 150.0, tick)
        found = energy(clock.work(0.02), seconds=2.0, windows=4, counter=counter, clock=clock)
        assert found.n == 4
        assert found.unit == "J"
        assert found.value == pytest.approx(150.0 * 0.02, rel=0.04)
        assert found.conditions["power"] == pytest.approx(150.0, rel=0.04)
        assert found.conditions["counter"] == "planted"


def test_planted_fault_a_window_that_begins_anywhere_is_wrong_by_a_tick(clock, monkeypatch):
    """Cut at any moment instead of where the counter moves, the same power comes out otherwise."""

    def cut(fn, inner, sync, counter, least, patience, clock, edge):
        begun, first, calls = clock(), counter.joules(), 0
        while clock() - begun < least:
            fn()
            calls += 1
        return max(calls, 1), None, clock() - begun, counter.joules() - first

    monkeypatch.setattr(meter, "_window", cut)
    counter = Counter(clock, 150.0, 0.7)
    found = energy(clock.work(0.02), seconds=1.0, windows=4, counter=counter, clock=clock)
    assert abs(found.conditions["power"] / 150.0 - 1) > 0.04 or found.spread > 0.2


def test_a_counter_that_stands_still_is_given_up(clock):
    found = energy(clock.work(0.02), seconds=1.0, counter=Counter(clock, 0.0, 0.1), clock=clock)
    assert str(found) == "not available here, because planted stood still for 3 s"


def test_why_there_is_none_is_passed_on(monkeypatch):
    none = Unavailable("it is a test")
    monkeypatch.setattr(meter, "rapl", lambda: none)
    assert energy(lambda: None, "cpu") is none
    assert "administrators" in str(meter.energy_counter("mps"))
    with pytest.raises(ValueError, match="windows"):
        energy(lambda: None, windows=0)


class Library:
    """pynvml, as far as it is used, with a board that has a counter of millijoules."""

    class NVMLError(Exception):
        pass

    def __init__(self, millijoules=0, fault=None):
        self.millijoules, self.fault, self.asked = millijoules, fault, []

    def nvmlInit(self):
        if self.fault:
            raise self.NVMLError(self.fault)

    def nvmlDeviceGetHandleByUUID(self, uuid):
        self.asked.append(uuid)
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        assert handle == self.asked[-1]
        return self.millijoules


@pytest.fixture
def board(monkeypatch):
    class Properties:
        uuid = "1b2c"

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)


@pytest.mark.usefixtures("board")
def test_nvml_counts_millijoules_of_the_board_that_torch_means():
    library = Library(2500)
    counter = nvml("cuda:1", library)
    assert library.asked == ["GPU-1b2c"]
    library.millijoules = 4000
    assert counter.joules() == 4.0
    assert Nvml(library, "GPU-1b2c").name == counter.name


@pytest.mark.usefixtures("board")
def test_nvml_says_why_not(monkeypatch):
    assert "Not Supported" in str(nvml("cuda", Library(fault="Not Supported")))

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(meter.importlib, "import_module", missing)
    assert "pip install nvidia-ml-py" in str(meter.energy_counter("cuda"))


def test_a_torch_without_that_board_says_so(monkeypatch):
    def none(device):
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(torch.cuda, "get_device_properties", none)
    assert "which board" in str(nvml("cuda", Library()))
