"""Committed offsets on disk: `consumerOffset.json`.

Owns the file; the table itself belongs to the data plane. Written every few seconds where it changed, and at
stop: a crash repeats at most what was consumed in between. Offsets beyond the end of their queue, which a power
loss can leave behind, are cut back before the first message takes such a position again; otherwise a group would
skip it. Threads: the event loop's; snapshot and file are made in a worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from rmqpy.clock import Clock
from rmqpy.config import files
from rmqpy.control.tables import unknown_fields
from rmqpy.control.tables.saver import Saver
from rmqpy.control.tables.unknown_fields import UnknownFields
from rmqpy.control.tables.versions import first_version, next_version
from rmqpy.protocol.declare import json_tree, record
from rmqpy.protocol.topics import DataVersion

log = logging.getLogger(__name__)

#: Which topics a group has offsets in, as earlier releases wrote it beside them. It would soon say something else.
_DERIVED: Final = "groupTopicMap"


class OffsetTable(Protocol):
    """The data plane's committed offsets."""

    def load(self, table: Mapping[str, Mapping[int, int]]) -> None: ...
    def snapshot(self) -> tuple[int, dict[str, dict[int, int]]]: ...
    @property
    def commits(self) -> int: ...


@record
class OffsetContent:
    """The content of the file: `topic@group` to queue id to offset."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[str, dict[int, int]]


class OffsetFile:
    """The file and the table it is made from."""

    def __init__(self, path: Path, offsets: OffsetTable, clock: Clock) -> None:
        self._clock = clock
        self._path = path
        self._offsets = offsets
        self._saver = Saver(path, lambda: self._content)
        self._version = first_version(clock)
        self._unknown = UnknownFields()
        self._saved_commits = offsets.commits

    def load(self, end_of: Callable[[str, int], int]) -> None:
        """Read the file, cut offsets back to the ends of their queues, and hand them to the data plane.

        Blocks; before the first send. Raises `ConfigError` naming the file.
        """
        loaded = files.load(self._path, lambda text: unknown_fields.read(OffsetContent, text))
        if loaded is None:
            return
        found, unknown = loaded
        self._unknown = unknown.without(_DERIVED)
        self._version = found.data_version
        table, cut = _cut(found.offset_table, end_of)
        self._offsets.load(table)
        self._saved_commits = self._offsets.commits
        if cut:
            log.warning("%d offsets lay beyond the end of their queue and were cut back", cut)
            self._saver.save_now()

    async def save(self) -> None:
        """Write the file if something was committed since the last time. Raises `StoreError`."""
        # Read before the snapshot is taken, which may hold more than is counted here but not less.
        commits = self._offsets.commits
        if commits != self._saved_commits:
            await self._saver.save()
            self._saved_commits = commits

    def _content(self) -> object:
        _, table = self._offsets.snapshot()
        self._version = next_version(self._version, self._clock)
        content = OffsetContent(data_version=self._version, offset_table=table)
        return self._unknown.put_back(json_tree(content))


def _cut(
    table: Mapping[str, Mapping[int, int]], end_of: Callable[[str, int], int]
) -> tuple[dict[str, dict[int, int]], int]:
    """The table with every offset within its queue, and how many were not."""
    cut = 0
    result: dict[str, dict[int, int]] = {}
    for key, queues in table.items():
        topic = key.partition("@")[0]
        for queue_id, offset in queues.items():
            # Apache writes -1 for a position that was never known.
            if queue_id >= 0 and offset >= 0:
                end = end_of(topic, queue_id)
                cut += offset > end
                result.setdefault(key, {})[queue_id] = min(offset, end)
    return result, cut
