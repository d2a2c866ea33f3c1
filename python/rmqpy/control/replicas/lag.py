"""Lag of a slave: how much of its master's log it does not have, and for how long that has been there.

Owns samples of where the master's log ended at what time. Pure but for the clock; the event loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

#: Of one sample every few seconds: some hours. A slave that is further behind is at least so late.
SAMPLES_MAX: Final = 4_096


class Lag:
    """The lag of this slave."""

    def __init__(self, elapsed: Callable[[], float], log_end: Callable[[], int]) -> None:
        """`elapsed`: seconds on a clock that nobody sets. `log_end`: of this slave's log."""
        self._elapsed = elapsed
        self._log_end = log_end
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES_MAX)

    def note(self, master_end: int) -> None:
        """The master's log ends there now."""
        self._samples.append((self._elapsed(), master_end))

    @property
    def bytes(self) -> int | None:
        """What the slave lacked when the master was asked last; None before."""
        return max(0, self._samples[-1][1] - self._log_end()) if self._samples else None

    @property
    def seconds(self) -> float | None:
        """How long ago the master had no more than the slave has now; 0 where it has no more."""
        if not self._samples:
            return None
        end = self._log_end()
        if self._samples[-1][1] <= end:
            return 0.0
        reached = next((at for at, sample in reversed(self._samples) if sample <= end), self._samples[0][0])
        return self._elapsed() - reached
