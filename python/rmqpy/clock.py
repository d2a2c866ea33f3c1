"""Time, real or set by hand: the control plane's counterpart of the native clock.

Code that measures a duration or writes a timestamp is handed a `Clock`; nothing else asks the system.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall-clock and monotonic time."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump either way. For what is written down or told to others."""

    def elapsed(self) -> float:
        """Seconds since some fixed moment; never goes back. For timeouts."""


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed(self) -> float:
        return time.monotonic()


class HandClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._elapsed = 0.0

    def wall_ms(self) -> int:
        return self._wall_ms + int(self._elapsed * 1000)

    def elapsed(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._elapsed += seconds
