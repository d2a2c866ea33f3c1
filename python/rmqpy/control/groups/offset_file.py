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
from typing import Final

from rmqpy._native import Offsets
from rmqpy.clock import Clock
from rmqpy.control.tables.file import TableFile
from rmqpy.protocol.declare import record
from rmqpy.protocol.topics import DataVersion

log = logging.getLogger(__name__)

#: The topics of each group, as earlier releases wrote them beside the offsets. They would soon disagree.
_DERIVED: Final = "groupTopicMap"


@record
class OffsetContent:
    """The content of the file: `topic@group` to queue id to offset."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[str, dict[int, int]]


class OffsetFile:
    """The file and the table it is made from."""

    def __init__(self, path: Path, offsets: Offsets, clock: Clock) -> None:
        self._offsets = offsets
        self._file = TableFile(path, OffsetContent, lambda: self._content, clock)
        self._saved_commits = offsets.commits

    def load(self, end_of: Callable[[str, int], int]) -> None:
        """Read the file, cut offsets back to the ends of their queues, and hand them to the data plane.

        Blocks; before the first send. Raises `ConfigError` naming the file.
        """
        found = self._file.load()
        if found is None:
            return
        self._file.forget(_DERIVED)
        table, cut = _cut(found.offset_table, end_of)
        self._offsets.load(table)
        self._saved_commits = self._offsets.commits
        if cut:
            log.warning("%d offsets lay beyond the end of their queue and were cut back", cut)
            self._file.save_now()

    async def save(self) -> None:
        """Write the file if something was committed since the last time. Raises `StoreError`."""
        # Read before the snapshot is taken, which may hold more than is counted here but not less.
        commits = self._offsets.commits
        if commits != self._saved_commits:
            await self._file.save()
            self._saved_commits = commits

    def _content(self, version: DataVersion) -> OffsetContent:
        return OffsetContent(data_version=version, offset_table=self._offsets.snapshot()[1])


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
