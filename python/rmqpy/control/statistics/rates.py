"""Rates from counters: over the last 10 s, minute and ten minutes.

Owns a ring of samples of the data plane's counters, one every 10 s. Threads: the event loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from rmqpy.clock import Clock

SAMPLE_SECONDS: Final = 10
_WINDOWS_SECONDS: Final = (10, 60, 600)


class _Sample(NamedTuple):
    at: float
    counters: Mapping[str, int]


class Rates:
    """Samples of counters that only grow."""

    def __init__(self, counters: Callable[[], Mapping[str, int]], clock: Clock) -> None:
        self._counters = counters
        self._clock = clock
        self._samples: deque[_Sample] = deque(maxlen=_WINDOWS_SECONDS[-1] // SAMPLE_SECONDS + 1)
        self.sample()

    def sample(self) -> None:
        """Take a sample; called every `SAMPLE_SECONDS`."""
        self._samples.append(_Sample(self._clock.elapsed(), dict(self._counters())))

    def per_second(self, *names: str) -> str:
        """Return the rate of the sum of these counters over the three windows, as tools read it: `1.5 1.2 0.9`."""
        newest = _Sample(self._clock.elapsed(), self._counters())
        return " ".join(str(self._rate(newest, window, names)) for window in _WINDOWS_SECONDS)

    def _rate(self, newest: _Sample, window: int, names: tuple[str, ...]) -> float:
        # The newest sample that is at least as old as the window, or at first the oldest one.
        oldest = self._samples[0]
        for sample in self._samples:
            if newest.at - sample.at >= window:
                oldest = sample
        seconds = newest.at - oldest.at
        grown = sum(newest.counters.get(name, 0) - oldest.counters.get(name, 0) for name in names)
        return round(grown / seconds, 2) if seconds > 0 else 0.0
