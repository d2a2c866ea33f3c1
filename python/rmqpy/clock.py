"""Time, real or set by hand: the control plane's counterpart of the native clock.

Code that measures a duration or writes a timestamp is handed a `Clock`; nothing else asks the system.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

#: Goes on while the machine is suspended, where the system has such a clock.
_FROM_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: A wall clock that gained so many seconds at once was set.
_STEP_S: Final = 1.0


class RunningClock:
    """Seconds since some fixed moment, time included in which this machine, or the guest that it is, was suspended.

    Never goes back. A guest that was paused from outside is given the time anew: where the wall clock is set forward,
    this clock goes with it. Right for what others may do meanwhile; timers go by the monotonic clock. Any thread: two
    that see the clock set at once may count that twice.
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


#: The dates that are shown: a day within those that Python has, so that each exists in every time zone. The native half
#: has the same ones.
_FIRST_DATE: Final = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
_LAST_DATE: Final = datetime.max.replace(microsecond=999_000, tzinfo=UTC) - timedelta(days=1)


def date_of(ms: float) -> datetime:
    """The date of milliseconds since the epoch, UTC; the nearest one for a number that no date has.

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

    def set_wall(self, wall_ms: int) -> None:
        """Set the wall clock, as an operator or a time server does; monotonic time goes on."""
        self._wall_ms = wall_ms - int(self._elapsed * 1000)
