"""Timetables: the occurrences of a schedule, in milliseconds since the epoch. Pure; any thread.

Cron expressions follow Debian's cron, also where clocks change: an occurrence in a skipped hour comes at its end, and
one in a repeated hour comes once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rmqpy.protocol.requests.schedules import Schedule

#: The shortest interval.
EVERY_MS_MIN = 1_000


class Timetable(ABC):
    """The occurrences of one schedule."""

    @abstractmethod
    def after(self, ms: int) -> int | None:
        """Return the first occurrence after a time; `None` without one."""

    @abstractmethod
    def until(self, ms: int) -> int | None:
        """Return the last occurrence at or before a time; `None` without one."""


class Interval(Timetable):
    """Occurrences at an interval, counted from a start."""

    def __init__(self, start_ms: int, every_ms: int) -> None:
        self._start_ms = start_ms
        self._every_ms = every_ms

    def after(self, ms: int) -> int:
        """As `Timetable.after`."""
        passed = max(0, ms - self._start_ms) // self._every_ms
        return self._start_ms + (passed + 1) * self._every_ms

    def until(self, ms: int) -> int | None:
        """As `Timetable.until`."""
        passed = (ms - self._start_ms) // self._every_ms
        return self._start_ms + passed * self._every_ms if passed > 0 else None


class Cron(Timetable):
    """Occurrences of a cron expression in a time zone."""

    def __init__(self, expression: str, zone: ZoneInfo) -> None:
        # Brokers without schedules do not need it.
        from cronsim import CronSim

        self._iterate = CronSim
        self._expression = expression
        self._zone = zone

    def after(self, ms: int) -> int | None:
        """As `Timetable.after`."""
        # Whole seconds: the next occurrence is after the begun one.
        return self._first(ms // 1_000, is_reverse=False)

    def until(self, ms: int) -> int | None:
        """As `Timetable.until`."""
        return self._first(ms // 1_000 + 1, is_reverse=True)

    def _first(self, seconds: int, *, is_reverse: bool) -> int | None:
        at = datetime.fromtimestamp(seconds, UTC).astimezone(self._zone)
        found: datetime | None = next(self._iterate(self._expression, at, reverse=is_reverse), None)
        return None if found is None else round(found.timestamp()) * 1_000


@lru_cache(maxsize=16_384)
def _cron(expression: str, zone: str) -> Cron:
    return Cron(expression, ZoneInfo(zone))


def timetable(schedule: Schedule) -> Timetable:
    """Return the timetable of a valid schedule."""
    if schedule.every_ms:
        return Interval(schedule.created_ms, schedule.every_ms)
    return _cron(schedule.cron, schedule.zone)


def fault(schedule: Schedule) -> str | None:
    """Return why a schedule has no valid timetable; `None` if it has one."""
    if bool(schedule.cron) == bool(schedule.every_ms):
        return "give either a cron expression or an interval"
    if schedule.every_ms:
        if schedule.every_ms < EVERY_MS_MIN:
            return f"the interval must be at least {EVERY_MS_MIN / 1_000:g} s"
        return None
    try:
        zone = ZoneInfo(schedule.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"the broker does not know the time zone {schedule.zone!r}: use a name such as Europe/Berlin"
    try:
        from cronsim import CronSimError
    except ImportError:
        return "cron expressions need the package cronsim at the broker: pip install cronsim"
    try:
        if Cron(schedule.cron, zone).after(schedule.created_ms) is None:
            return f"{schedule.cron!r} has no occurrence"
    except CronSimError as error:
        return f"{schedule.cron!r} is not a cron expression: {error}"
    return None
