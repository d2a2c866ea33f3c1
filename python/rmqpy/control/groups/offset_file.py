"""Committed offsets on disk: `consumerOffset.json`.

Owns the file; the table itself belongs to the data plane. Written every few seconds where it changed, and at
stop: a crash repeats at most what was consumed in between. Offsets beyond the end of their queue, which a power
loss can leave behind, are cut back before the first message takes such a position again; otherwise a group would
skip it. Offsets of queues that are not there are left out, so that the file does not grow with each of its lives.
Threads: the event loop's; snapshot and file are made in a worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rmqpy._native import Offsets
from rmqpy.clock import Clock
from rmqpy.control.tables.file import TableFile
from rmqpy.errors import DecodeError
from rmqpy.protocol.declare import record
from rmqpy.protocol.topics import DataVersion

log = logging.getLogger(__name__)

#: The topics of each group, as earlier releases wrote them beside the offsets. They would soon disagree.
_DERIVED: Final = "groupTopicMap"
#: What a queue may be called on the wire.
_QUEUE_IDS: Final = range(1 << 31)


@record
class OffsetContent:
    """The content of the file: `topic@group` to queue id to offset."""

    data_version: DataVersion = DataVersion()
    #: Integers; an earlier release wrote some that have more than 64 bits.
    offset_table: Mapping[str, Mapping[int, object]]


class OffsetFile:
    """The file and the table it is made from."""

    def __init__(self, path: Path, offsets: Offsets, clock: Clock) -> None:
        self._offsets = offsets
        self._file = TableFile(path, OffsetContent, lambda: self._content, clock)
        self._saved_commits = offsets.commits

    def load(self, has_queue: Callable[[str, int], bool], end_of: Callable[[str, int], int]) -> None:
        """Read the file, cut offsets back to the ends of their queues, and hand them to the data plane.

        A queue is there when its topic has it, or when messages of it are left. Blocks; before the first send. Raises
        `ConfigError` naming the file.
        """
        found = self._file.load(_checked)
        if found is None:
            return
        self._file.forget(_DERIVED)
        table, cut, dropped = _cut(_checked(found), has_queue, end_of)
        self._offsets.load(table)
        self._saved_commits = self._offsets.commits
        if cut:
            log.warning("%d offsets lay beyond the end of their queue and were cut back", cut)
        if dropped:
            log.warning("%d offsets of queues that are not there were dropped", dropped)
        if cut or dropped:
            self._file.save_now()

    @property
    def version(self) -> DataVersion:
        """Of the table as it was written last."""
        return self._file.version

    @property
    def is_saved(self) -> bool:
        """Whether nothing was committed since the file was written."""
        return self._offsets.commits == self._saved_commits

    async def save(self) -> None:
        """Write the file if something was committed since the last time. Raises `StoreError`."""
        # Read before the snapshot is taken, which may hold more than is counted here but not less.
        commits = self._offsets.commits
        if commits != self._saved_commits:
            await self._file.save()
            self._saved_commits = commits

    def _content(self, version: DataVersion) -> OffsetContent:
        return OffsetContent(data_version=version, offset_table=self._offsets.snapshot()[1])


def _checked(content: OffsetContent) -> Mapping[str, Mapping[int, int]]:
    """The table of a file, of which every offset is an integer. Raises `DecodeError`."""
    return {
        key: {queue_id: _integer(key, offset) for queue_id, offset in queues.items()}
        for key, queues in content.offset_table.items()
    }


def _integer(key: str, value: object) -> int:
    if isinstance(value, int):
        return value
    raise DecodeError(f"offsetTable.{key} must have integers, not {value!r:.60}")


def _cut(
    table: Mapping[str, Mapping[int, int]],
    has_queue: Callable[[str, int], bool],
    end_of: Callable[[str, int], int],
) -> tuple[dict[str, dict[int, int]], int, int]:
    """The table with every offset within its queue; how many were not, and how many had no queue."""
    cut = dropped = 0
    result: dict[str, dict[int, int]] = {}
    for key, queues in table.items():
        topic = key.partition("@")[0]
        for queue_id, offset in queues.items():
            end = end_of(topic, queue_id) if queue_id in _QUEUE_IDS else 0
            if end == 0 and not has_queue(topic, queue_id):
                dropped += 1
            # Apache writes -1 for a position that was never known.
            elif offset >= 0:
                cut += offset > end
                result.setdefault(key, {})[queue_id] = min(offset, end)
    return result, cut, dropped
