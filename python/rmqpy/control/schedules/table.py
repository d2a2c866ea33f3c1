"""Schedule table: all schedules of a broker, in `schedules.json`, and their progress, in `scheduleProgress.json`.

Threads: the event loop's; the files are written in a worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from rmqpy.clock import Clock
from rmqpy.control.tables.file import TableFile
from rmqpy.control.tables.named import NamedTable
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.schedules import Schedule, ScheduleProgress, ScheduleTable
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.server import Refused

#: The most schedules of a broker.
SCHEDULES_MAX: Final = 10_000


class Schedules(NamedTable[Schedule, ScheduleTable]):
    """All schedules."""

    member = "schedules"

    def __init__(self, path: Path, clock: Clock, *, is_copy: bool = False) -> None:
        file = TableFile(path, ScheduleTable, self._snapshot, clock, self._ended)
        super().__init__(file, (), is_copy=is_copy)
        #: Called with the name of a changed or removed schedule.
        self.on_change: Callable[[str], None] = lambda name: None

    def load(self) -> None:
        """Read the file. Blocks; raises `ConfigError` naming it."""
        if (found := self._file.load()) is not None:
            self._entries.load(found.schedules)

    async def set(self, schedule: Schedule) -> None:
        """Create or replace a schedule, durably. Raises as `put` does, and `Refused` if there are too many."""
        if schedule.name not in self.next_table and len(self.next_table) >= SCHEDULES_MAX:
            remark = f"the broker has {SCHEDULES_MAX} schedules, which is the maximum"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        await self.put(schedule)

    async def copy_all(self, entries: Mapping[str, Schedule]) -> None:
        """Become a copy of another broker's schedules. Raises `StoreError`."""
        if entries != self.next_table:
            await self.copy(entries, self.version)

    def _snapshot(self) -> Callable[[DataVersion], ScheduleTable]:
        schedules = dict(self._entries.snapshot())
        return lambda version: ScheduleTable(data_version=version, schedules=schedules)

    @staticmethod
    def _name(entry: Schedule) -> str:
        return entry.name

    def _publish(self, entry: Schedule) -> None:
        self.on_change(entry.name)

    def _retract(self, name: str) -> None:
        self.on_change(name)


class ProgressFile:
    """The latest occurrence of each schedule that is in the log.

    Invariant: the file never claims an occurrence that a power loss may still remove from the log, and so is behind.
    After a start, the index has the later occurrences.
    """

    def __init__(self, path: Path, clock: Clock, flushed: Callable[[], Awaitable[bool]]) -> None:
        """`flushed` waits until the log is durable up to its present end, and returns whether it is."""
        self._file = TableFile(path, ScheduleProgress, self._snapshot, clock, is_compact=True)
        self._flushed = flushed
        self.armed_ms: dict[str, int] = {}
        self._durable_ms: dict[str, int] = {}

    def load(self) -> None:
        """Read the file. Blocks; raises `ConfigError` naming it."""
        if (found := self._file.load()) is not None:
            self.armed_ms = dict(found.armed_ms)
            self._durable_ms = dict(found.armed_ms)

    async def save(self) -> None:
        """Save the progress if it has changed. Raises `StoreError`."""
        armed_ms = dict(self.armed_ms)
        if armed_ms != self._durable_ms and await self._flushed():
            self._durable_ms = armed_ms
            await self._file.save()

    async def copy(self, armed_ms: Mapping[str, int]) -> None:
        """Become a copy of another broker's progress. Raises `StoreError`."""
        if armed_ms != self._durable_ms:
            self.armed_ms = dict(armed_ms)
            self._durable_ms = dict(armed_ms)
            await self._file.save()

    def _snapshot(self) -> Callable[[DataVersion], ScheduleProgress]:
        armed_ms = self._durable_ms
        return lambda version: ScheduleProgress(data_version=version, armed_ms=armed_ms)
