"""Meters on a clock of the test's own: what is counted as time, and what is not."""

import pytest
import torch

from inferlab.lab import meters
from inferlab.lab.meters import interleave, repeat, timed, timeline


def test_warm_up_is_not_measured(clock):
    fn = clock.work(9.0, 9.0, 1.0, 2.0, 3.0, 3.0)
    m = repeat(fn, min_repeats=3, min_seconds=0, warmup=2, clock=clock)
    assert m.samples == (1.0, 2.0, 3.0)
    assert m.value == 2.0
    assert m.unit == "s"
    assert m.conditions["warmup"] == 2


def test_repeat_goes_on_until_both_limits_are_reached(clock):
    assert repeat(clock.work(0.1), min_repeats=2, min_seconds=1.0, clock=clock).n >= 10
    assert repeat(clock.work(5.0), min_repeats=4, min_seconds=1.0, clock=clock).n == 4


def test_inner_calls_are_divided_by(clock):
    m = repeat(clock.work(0.5), min_repeats=3, min_seconds=0, inner=10, clock=clock)
    assert m.value == pytest.approx(0.5)
    assert len(clock.calls) == 2 + 3 * 10


def test_conditions_and_provenance_are_kept(clock):
    m = repeat(clock.work(1.0), 1, 0, conditions={"dtype": "bf16"}, clock=clock)
    assert m.conditions["dtype"] == "bf16"
    assert m.conditions["device"] == "cpu"
    assert "cpu" in m.provenance


@pytest.mark.parametrize("bad", [{"min_repeats": 0}, {"inner": 0}, {"warmup": -1}])
def test_counts_that_make_no_sense_are_refused(clock, bad):
    with pytest.raises(ValueError, match="repeat needs"):
        repeat(clock.work(1.0), clock=clock, **bad)


def test_the_device_is_waited_for_before_the_clock_is_read(clock, monkeypatch):
    queued = []

    def launch():  # a GPU: the call returns at once, the work is done while waiting
        queued.append(1)

    def wait():
        clock.now += 2.0 * len(queued)
        queued.clear()

    monkeypatch.setattr(meters, "synchronizer", lambda device: wait)
    monkeypatch.setattr(meters, "provenance", lambda device: {})
    assert repeat(launch, 3, 0, clock=clock).value == 2.0


def test_synchronizer_asks_the_right_device(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: asked.append(str(device)))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: asked.append("mps"))
    meters.synchronizer("cuda:1")()
    meters.synchronizer("mps")()
    meters.synchronizer("cpu")()
    assert asked == ["cuda:1", "mps"]


def test_interleave_takes_one_of_each_per_round(clock):
    fns = {"a": clock.work(1.0, name="a"), "b": clock.work(2.0, name="b")}
    found = interleave(fns, min_rounds=3, warmup=1, clock=clock)
    assert clock.calls == list("ab" * 4)
    assert found == {"a": (1.0,) * 3, "b": (2.0,) * 3}
    assert interleave({"a": clock.work(2.0)}, 2, inner=5, clock=clock) == {"a": (2.0, 2.0)}
    with pytest.raises(ValueError, match="at least one function"):
        interleave({}, clock=clock)


def _steps(clock, *seconds):
    for index, duration in enumerate(seconds):
        clock.now += duration
        yield index


def test_timed_stamps_each_step_since_the_first_was_asked_for(clock):
    run = timed(_steps(clock, 5.0, 1.0, 1.0), clock=clock)
    clock.now += 1000.0  # between making the iterator and asking for a step
    assert list(run) == [(0, 5.0), (1, 6.0), (2, 7.0)]
    line = run.timeline()
    assert (line.sent, line.ttft, line.tpot, line.e2e) == (0.0, 5.0, 1.0, 7.0)


def test_timed_counts_from_sent_where_it_is_given(clock):
    sent = clock()
    clock.now += 0.5  # tokenizing
    assert list(timed(_steps(clock, 5.0), sent=sent, clock=clock)) == [(0, 5.5)]


def test_what_the_caller_does_between_steps_takes_time(clock):
    times = []
    for _, t in timed(_steps(clock, 1.0, 1.0), clock=clock):
        times.append(t)
        clock.now += 10.0
    assert times == [1.0, 12.0]


def test_timed_waits_for_the_device(clock, monkeypatch):
    def wait():
        clock.now += 0.25

    monkeypatch.setattr(meters, "synchronizer", lambda device: wait)
    assert [t for _, t in timed(_steps(clock, 1.0, 1.0), clock=clock)] == [1.25, 2.5]


def test_timeline_runs_to_the_end(clock):
    steps, line = timeline(_steps(clock, 2.0, 1.0, 3.0), clock=clock)
    assert steps == [0, 1, 2]
    assert line.itl == (1.0, 3.0)


def test_unavailable_is_false_and_says_why():
    none = meters.Unavailable("this machine has no such counter")
    assert not none
    assert str(none) == "not available here, because this machine has no such counter"
