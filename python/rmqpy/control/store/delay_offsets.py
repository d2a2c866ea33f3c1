"""How far the delivery of delayed messages has got, on disk: `delayOffset.json`.

Owns the file; the offsets themselves belong to the data plane. Written every few seconds where they moved, and at
stop: a crash delivers at most what came due in between once more. Threads: the event loop's; the data plane is asked
and the file written in a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rmqpy.clock import Clock
from rmqpy.config import files
from rmqpy.control.tables import unknown_fields
from rmqpy.control.tables.saver import Saver
from rmqpy.control.tables.unknown_fields import UnknownFields
from rmqpy.control.tables.versions import first_version, next_version
from rmqpy.protocol.declare import json_tree, record
from rmqpy.protocol.topics import DataVersion


class Delivery(Protocol):
    """The data plane's delivery."""

    def delay_offsets(self) -> dict[int, int]: ...


@record
class DelayContent:
    """The content of the file: delay level to the next offset in its queue."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[int, int]


class DelayFile:
    """The file and the delivery it follows."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._saver = Saver(path, self._snapshot)
        self._version = first_version(clock)
        self._unknown = UnknownFields()
        self._offsets: dict[int, int] = {}
        self._read: Callable[[], dict[int, int]] = lambda: self._offsets

    @property
    def offsets(self) -> dict[int, int]:
        """What the file says, by level."""
        return dict(self._offsets)

    def load(self) -> None:
        """Read the file. Blocks; raises `ConfigError` naming it. The data plane moves offsets into their queues."""
        loaded = files.load(self._path, lambda text: unknown_fields.read(DelayContent, text))
        if loaded is not None:
            found, self._unknown = loaded
            self._version = found.data_version
            self._offsets = {
                level: offset for level, offset in found.offset_table.items() if level > 0 and offset > 0
            }

    def follow(self, delivery: Delivery) -> None:
        """Save what this delivery says from now on."""
        self._read = delivery.delay_offsets

    async def save(self) -> None:
        """Write the file if something was delivered since the last time. Raises `StoreError`."""
        offsets = await asyncio.to_thread(self._read)
        if offsets != self._offsets:
            self._offsets = offsets
            await self._saver.save()

    def _snapshot(self) -> Callable[[], object]:
        self._version = next_version(self._version, self._clock)
        content = DelayContent(data_version=self._version, offset_table=dict(self._offsets))
        return lambda: self._unknown.put_back(json_tree(content))
