"""A step beside its ceiling: what is paired, what is discarded, on how many threads."""

import time

import pytest
import torch

from inferlab.lab import clock as clocks
from inferlab.lab.meters import paired, repeat
from inferlab.lab.pairs import Paired


def on(clock, waits=lambda: None):
    """The test's clock, one thread, and no look at what the machine does."""
    return {"clock": clock, "threads": 1, "waits": waits}


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_paired_alternates_and_ends_with_the_ceiling(clock):
    ceiling, step = clock.work(1.0, name="c"), clock.work(3.0, name="s")
    p = paired(ceiling, step, rounds=3, warmup=0, balance=False, **on(clock))
    assert clock.calls == list("cscscsc")
    assert p.ceiling.samples == (1.0, 1.0, 1.0)
    assert p.step.samples == (3.0, 3.0, 3.0)


class _Drifting:
    """Work whose time grows by 5 % of the first call's with every call of either kind."""

    def __init__(self, clock):
        self.clock, self.calls = clock, 0

    def work(self, seconds):
        def run():
            self.clock.now += seconds * (1 + 0.05 * self.calls)
            self.calls += 1

        return run


def test_a_drift_of_the_machine_cancels(clock):
    machine = _Drifting(clock)
    p = paired(machine.work(1.0), machine.work(2.0), 20, warmup=0, balance=False, **on(clock))
    found = p.ratio()
    assert found.low == pytest.approx(2.0)
    assert found.high == pytest.approx(2.0)


def test_planted_fault_a_ceiling_taken_once_before_would_not_cancel(clock):
    machine = _Drifting(clock)
    once = repeat(machine.work(1.0), 20, 0, warmup=0, clock=clock)
    later = repeat(machine.work(2.0), 20, 0, warmup=0, clock=clock)
    assert later.value / once.value > 2.5


def test_balance_makes_both_samples_about_equally_long(clock):
    ceiling, step = clock.work(1.0), clock.work(10.0)
    p = paired(ceiling, step, rounds=8, warmup=0, **on(clock))
    assert p.ceiling.conditions["inner"] == 10
    assert p.step.conditions["inner"] == 1
    assert p.ratio().value == pytest.approx(10.0)
    other = paired(step, ceiling, rounds=8, warmup=0, **on(clock))
    assert (other.ceiling.conditions["inner"], other.step.conditions["inner"]) == (1, 10)


def test_efficiency_is_rate_over_rate(clock):
    ceiling = clock.work(1.0)
    ceiling.work = 100  # bytes
    p = paired(ceiling, clock.work(4.0), rounds=8, step_work=200, **on(clock))
    assert p.efficiency().value == pytest.approx((200 / 4.0) / (100 / 1.0))
    with pytest.raises(ValueError, match="needs the work of both"):
        paired(ceiling, clock.work(4.0), rounds=8, **on(clock)).efficiency()


class Line:
    """A queue for cores: `work` takes its seconds, of which threads stand `stood` in line when more
    than `calm` of them are used."""

    def __init__(self, clock, calm):
        self.clock, self.calm, self.stood, self.used = clock, calm, 0.0, []

    def work(self, seconds):
        def run():
            self.used.append(torch.get_num_threads())
            slow = self.used[-1] > self.calm
            self.clock.now += seconds * (3 if slow else 1)
            self.stood += seconds if slow else 0.0

        return run

    def __call__(self):
        return self.stood


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("calm", [1, 2])
def test_as_many_threads_as_run_undisturbed(clock, calm):
    line = Line(clock, calm)
    p = paired(
        line.work(0.1), line.work(0.3), 8, 0, balance=False, clock=clock, threads=2, waits=line
    )
    assert p.step.provenance["threads"] == p.ceiling.provenance["threads"] == calm
    assert p.ratio().value == pytest.approx(3.0)
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_a_core_is_left_to_a_neighbour_whether_there_is_one_or_not(clock, monkeypatch):
    monkeypatch.setattr(clocks.host, "cores", lambda: 2)
    line = Line(clock, calm=2)
    paired(line.work(0.1), line.work(0.3), 8, 0, clock=clock, waits=line)
    assert set(line.used) == {1}


@pytest.mark.usefixtures("two_threads")
def test_rounds_in_which_threads_stood_in_line_are_discarded(clock):
    line = Line(clock, calm=2)
    stops = iter([0, 0, 0, 5.0, 0, 0, 0, 0, 5.0] + [0] * 99)

    def step():
        late = next(stops)
        clock.now += 0.3 + late
        line.stood += late

    p = paired(line.work(0.1), step, 8, 0, balance=False, clock=clock, threads=2, waits=line)
    assert p.step.conditions["discarded"] == 2
    assert p.step.samples == pytest.approx((0.3,) * 8)
    assert p.step.provenance["threads"] == 2


@pytest.mark.usefixtures("two_threads")
def test_planted_fault_kept_rounds_would_move_the_ratio(clock):
    """Where the machine does not tell who stood in line, the same stops are in the samples."""
    stops = iter([0, 0, 5.0] * 99)

    def step():
        clock.now += 0.3 + next(stops)

    p = paired(
        clock.work(0.1), step, 9, 0, balance=False, clock=clock, threads=2, waits=lambda: None
    )
    assert p.step.conditions["discarded"] == 0
    assert p.step.maximum == pytest.approx(5.3)


@pytest.mark.usefixtures("two_threads")
def test_a_neighbour_that_comes_later_costs_a_thread(clock):
    """Undisturbed while the threads are chosen, never again after: one thread is what remains."""
    line = Line(clock, calm=2)

    def step():
        line.work(0.3)()
        if len(line.used) > 3:
            line.calm = 1

    p = paired(line.work(0.1), step, 8, 0, balance=False, clock=clock, threads=2, waits=line)
    assert p.step.provenance["threads"] == 1
    assert p.step.samples == pytest.approx((0.3,) * 8)


def test_the_record_says_which_clock_was_read():
    p = paired(lambda: None, lambda: None, 8, threads=1, balance=False)
    assert p.step.conditions["clock"] == "time on the core"
    other = paired(lambda: None, lambda: None, 8, threads=1, balance=False, clock=time.perf_counter)
    assert other.step.conditions["clock"] == "wall"


def test_a_pair_is_saved_whole(clock):
    ceiling = clock.work(1.0)
    ceiling.work = 100
    p = paired(ceiling, clock.work(4.0), rounds=8, step_work=200, **on(clock))
    assert Paired.from_dict(p.to_dict()) == p
    short = p.step.from_samples("x", [1.0], "s", {}, {}).to_dict()
    for fault in ({"ceiling": None}, {"step": short}):
        with pytest.raises(ValueError, match="saved measurement|a pair"):
            Paired.from_dict({**p.to_dict(), **fault})
