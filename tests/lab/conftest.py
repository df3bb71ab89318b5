"""A clock that only moves when told, so that no test of the laboratory depends on time."""

from dataclasses import replace

import pytest

from inferlab.theory import shapes


class FakeClock:
    """Called, it returns the time; `work(seconds)` makes a function that takes so long."""

    def __init__(self):
        self.now, self.calls = 100.0, []

    def __call__(self):
        return self.now

    def work(self, *seconds, name="work"):
        """A function whose calls take the seconds given, the last one for all calls after."""
        durations = list(seconds)

        def run():
            self.calls.append(name)
            self.now += durations.pop(0) if len(durations) > 1 else durations[0]

        return run


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture(scope="session")
def tiny():
    """A shape of the default model's family that runs in no time."""
    return replace(
        shapes.get("smollm2-135m"), name="tiny", n_layers=3, d_model=64, n_heads=4, n_kv_heads=2,
        head_dim=16, d_ff=96, vocab=128, max_context=1024,
    )  # fmt: skip
