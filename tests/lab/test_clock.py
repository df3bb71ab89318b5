"""Which clock is read, who stood in line, and how many threads are used."""

import time

import pytest
import torch

from inferlab.lab import clock as clocks


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_one_thread_is_timed_on_its_core_and_several_on_the_wall():
    with clocks.threads(1):
        assert clocks.core_clock("cpu") is time.thread_time
        assert clocks.core_clock("cuda") is time.perf_counter
    with clocks.threads(2):
        assert clocks.core_clock("cpu") is time.perf_counter


def test_time_without_a_core_is_no_time_on_the_core():
    begun, wall = time.thread_time(), time.perf_counter()
    time.sleep(0.05)
    assert time.perf_counter() - wall >= 0.05
    assert time.thread_time() - begun < 0.05


def test_threads_are_put_back():
    before = torch.get_num_threads()
    with clocks.threads(3):
        assert torch.get_num_threads() == 3
    with clocks.threads(None):
        assert torch.get_num_threads() == before
    with pytest.raises(RuntimeError), clocks.threads(5):
        raise RuntimeError
    assert torch.get_num_threads() == before


def test_waiting_of_all_threads_is_added_up(tmp_path):
    for name, text in (("1", "7 1500000000 3"), ("2", "9 500000000 8"), ("3", "gone")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedstat").write_text(text)
    assert clocks.waited(tmp_path) == pytest.approx(2.0)


def test_a_system_that_does_not_tell_is_none(tmp_path):
    assert clocks.waited(tmp_path) is None


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(("cores", "used"), [(1, 1), (2, 1), (4, 3), (5, 4), (64, 4)])
def test_a_core_is_left_free(monkeypatch, cores, used):
    monkeypatch.setattr(clocks.host, "cores", lambda: cores)
    assert clocks.spare_threads() == used


class Cores:
    """A machine that gives `free` cores: threads beyond them stand in line all the time."""

    def __init__(self, clock, free):
        self.clock, self.free, self.stood, self.tried = clock, free, 0.0, []

    def run(self):
        count = torch.get_num_threads()
        self.tried.append(count)
        self.clock.now += 0.02
        self.stood += 0.02 * max(0, count - self.free)


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("free", [1, 2, 3, 4, 8])
def test_as_many_threads_as_the_machine_gives(clock, free):
    cores = Cores(clock, free)
    assert clocks.calm_threads(cores.run, clock, lambda: cores.stood) == min(4, free)
    assert len(set(cores.tried)) <= 2  # those in line are taken away at once, not one by one
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_a_neighbour_that_passes_by_costs_no_thread(clock):
    cores, visits = Cores(clock, 4), iter([1, 1] + [0] * 99)

    def run():
        cores.run()
        clock.now += 0.05
        cores.stood += 0.05 * next(visits)

    assert clocks.calm_threads(run, clock, lambda: cores.stood) == 4


@pytest.mark.usefixtures("four_threads")
def test_a_little_waiting_is_calm_and_silence_is_too(clock):
    cores = Cores(clock, 4)
    assert clocks.calm_threads(cores.run, clock, lambda: clock.now * 0.9 * clocks.CALM) == 4
    assert clocks.calm_threads(cores.run, clock, lambda: clock.now * 1.5 * clocks.CALM) == 1
    assert clocks.calm_threads(cores.run, clock, lambda: None) == 4
