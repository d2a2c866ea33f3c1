"""Lag of a slave: the bytes of its master's log that it lacks, and their age.

Owns samples of the end of the master's log. Pure, except for the clock; the event loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

#: Some hours of samples. A slave that is further behind reports at least that lag.
SAMPLES_MAX: Final = 4_096


class Lag:
    """The lag of this slave."""

    def __init__(self, elapsed: Callable[[], float], log_end: Callable[[], int]) -> None:
        """`elapsed` returns seconds of a monotonic clock, `log_end` the end of this slave's log."""
        self._elapsed = elapsed
        self._log_end = log_end
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES_MAX)

    def note(self, master_end: int) -> None:
        """Note the current end of the master's log."""
        self._samples.append((self._elapsed(), master_end))

    @property
    def bytes(self) -> int | None:
        """The missing bytes at the last query of the master; `None` before."""
        return max(0, self._samples[-1][1] - self._log_end()) if self._samples else None

    @property
    def seconds(self) -> float | None:
        """The seconds since the master had no more than the slave has now; 0 if it has no more."""
        if not self._samples:
            return None
        end = self._log_end()
        if self._samples[-1][1] <= end:
            return 0.0
        reached = next((at for at, sample in reversed(self._samples) if sample <= end), self._samples[0][0])
        return self._elapsed() - reached
