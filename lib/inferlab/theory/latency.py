"""TTFT, TPOT, ITL and end-to-end latency, defined once, on the times at which tokens arrived.

The simulator, the engine's driver and the client of an endpoint all return a `Timeline`; no other
code computes these quantities. Times are in seconds on one clock, whose zero does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from inferlab.theory import formulas


@dataclass(frozen=True)
class Timeline:
    """When a request was sent and when each of its output tokens arrived, seconds, in order.

    Raises ValueError if a token arrives before the request is sent or before the token it follows.
    """

    sent: float
    tokens: tuple[float, ...]

    def __post_init__(self):
        object.__setattr__(self, "tokens", tuple(self.tokens))
        if any(not later >= earlier for earlier, later in pairwise((self.sent, *self.tokens))):
            raise ValueError("the times of a timeline go backwards: sent first, then each token")

    @property
    def n(self) -> int:
        """Number of output tokens."""
        return len(self.tokens)

    @property
    def ttft(self) -> float:
        """Time to first token, t_1 - t_sent: queueing, prefill and the first sample."""
        return formulas.ttft(self.sent, self._at(0))

    @property
    def itl(self) -> tuple[float, ...]:
        """Inter-token latencies t_{i+1} - t_i, n - 1 of them; empty for one token or none."""
        return tuple(later - earlier for earlier, later in pairwise(self.tokens))

    @property
    def tpot(self) -> float:
        """Time per output token after the first, (t_n - t_1) / (n - 1): the mean of `itl`.

        n tokens span n - 1 intervals. Raises ValueError for fewer than two tokens, where it is
        undefined.
        """
        first, last = (self.tokens[0], self.tokens[-1]) if self.tokens else (0.0, 0.0)
        return formulas.tpot(first, last, self.n)

    @property
    def e2e(self) -> float:
        """End-to-end latency, t_n - t_sent; for n >= 2 it is ttft + (n - 1) tpot."""
        return self._at(-1) - self.sent

    def _at(self, index: int) -> float:
        if not self.tokens:
            raise ValueError("the request has no output token yet: its latency is undefined")
        return self.tokens[index]
