"""Time, real or set by hand: the control plane's counterpart of the native clock.

Code that measures a duration or writes a timestamp uses a `Clock`, never the system directly.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

#: Continues while the machine is suspended, if the system has such a clock.
_FROM_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: A wall clock that jumped forward by this many seconds was set.
_STEP_S: Final = 1.0


class RunningClock:
    """Seconds since a fixed moment, including time for which this machine, or its virtual machine, was suspended.

    Never goes back. After a pause of the virtual machine the wall clock is set forward, and this clock follows it. Use
    it for what others may do meanwhile; timers use the monotonic clock. Any thread: two that see such a jump
    concurrently may count it twice.
    """

    def __init__(self) -> None:
        self._wall_ahead = self._ahead()
        self._skipped = 0.0

    def __call__(self) -> float:
        ahead = self._ahead()
        if abs(ahead - self._wall_ahead) > _STEP_S:
            self._skipped += max(0.0, ahead - self._wall_ahead)
            self._wall_ahead = ahead
        return time.clock_gettime(_FROM_BOOT) + self._skipped

    @staticmethod
    def _ahead() -> float:
        return time.time() - time.clock_gettime(_FROM_BOOT)


running: Final = RunningClock()


#: The range of dates: a day within Python's, so that each exists in every time zone. The native module has the same
#: range.
_FIRST_DATE: Final = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
_LAST_DATE: Final = datetime.max.replace(microsecond=999_000, tzinfo=UTC) - timedelta(days=1)


def date_of(ms: float) -> datetime:
    """The date of milliseconds since the epoch, UTC, limited to valid dates.

    >>> date_of(0).year, date_of(1_767_225_600_000_000).year, date_of(-(1 << 63)).year
    (1970, 9999, 1)
    """
    try:
        return min(max(datetime.fromtimestamp(ms / 1_000, UTC), _FIRST_DATE), _LAST_DATE)
    except (ValueError, OverflowError, OSError):
        return _FIRST_DATE if ms < 0 else _LAST_DATE


class Clock(Protocol):
    """A source of wall-clock and monotonic time."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump either way. For stored and transmitted times."""

    def elapsed(self) -> float:
        """Seconds since a fixed moment; never goes back. For timeouts."""


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed(self) -> float:
        return time.monotonic()


class HandClock:
    """A clock that only advances when a test moves it."""

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

    def set_wall(self, wall_ms: int) -> None:
        """Set the wall clock, like an operator or a time server; monotonic time continues."""
        self._wall_ms = wall_ms - int(self._elapsed * 1000)
