"""Delay offsets on disk: the delivery progress of delayed messages, in `delayOffset.json`.

Owns the file; the data plane owns the offsets. Written every few seconds after changes, and at the stop: a crash
delivers again at most what came due in between. Threads: the event loop's; a worker queries the data plane and writes
the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from rmqpy._native import DueMessages
from rmqpy.clock import Clock
from rmqpy.control.tables.file import TableFile
from rmqpy.protocol.declare import record
from rmqpy.protocol.topics import DataVersion


@record
class DelayContent:
    """The content of the file: next offsets by delay level."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[int, int]


class DelayFile:
    """The file, and the delivery that it follows."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = TableFile(path, DelayContent, self._snapshot, clock)
        self._offsets: dict[int, int] = {}
        self._saved = self._offsets
        self._read: Callable[[], dict[int, int]] = lambda: self._offsets

    @property
    def offsets(self) -> dict[int, int]:
        """The offsets in the file, by level."""
        return dict(self._saved)

    @property
    def version(self) -> DataVersion:
        """The version, which grows with each write."""
        return self._file.version

    def load(self) -> None:
        """Read the file. Blocks; raises `ConfigError` naming it. The data plane limits offsets to their queues."""
        found = self._file.load()
        if found is not None:
            self._offsets = {
                level: offset for level, offset in found.offset_table.items() if level > 0 and offset > 0
            }
            self._saved = self._offsets

    def follow(self, due: DueMessages) -> None:
        """Save the offsets of this delivery from now on."""
        self._read = due.delay_offsets

    async def end(self, offsets: dict[int, int]) -> None:
        """Save the final offsets of the delivery, and stop following it. Raises `StoreError`."""
        self._read = lambda: offsets
        try:
            await self.save()
        finally:
            self._read = lambda: self._offsets

    async def copy(self, offsets: Mapping[int, int], version: DataVersion) -> None:
        """Take over newer offsets of another broker that delivers. Raises `StoreError`."""
        own = self._saved
        further = {
            level: offset for level, offset in offsets.items() if level > 0 and offset > own.get(level, 0)
        }
        if further:
            self._offsets = own | further
            self._file.copied(version)
            await self._file.save()
            self._saved = self._offsets

    async def save(self) -> None:
        """Write the file if something was delivered since the last write. Raises `StoreError`.

        Keeps the progress of unknown levels, which may return with their messages.
        """
        offsets = self._offsets | await asyncio.to_thread(self._read)
        if offsets != self._saved:
            self._offsets = offsets
            await self._file.save()
            self._saved = offsets

    def _snapshot(self) -> Callable[[DataVersion], DelayContent]:
        offsets = dict(self._offsets)
        return lambda version: DelayContent(data_version=version, offset_table=offsets)
