"""Committed offsets on disk: `consumerOffset.json`, or `lmqConsumerOffset.json` if the broker has light queues.

Owns the file; the data plane owns the table. Written every few seconds after changes, and at the stop: a crash repeats
at most what was consumed in between. Offsets beyond the end of their queue, which a power loss can leave behind, are
cut back before a new message takes such a position, or a group would skip it. Offsets of unknown queues are dropped,
so that the file does not grow with each of their lives. Threads: the event loop's; a worker takes the snapshot and
writes the file.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rmqpy._native import Offsets
from rmqpy.clock import Clock
from rmqpy.control.groups import light_offsets
from rmqpy.control.tables.file import TableFile
from rmqpy.errors import DecodeError
from rmqpy.protocol.declare import record
from rmqpy.protocol.topics import DataVersion

log = logging.getLogger(__name__)

#: The topics of each group, as earlier releases wrote them. They would soon disagree with the offsets.
_DERIVED: Final = "groupTopicMap"
#: The name of the file of a broker with light queues.
_LIGHT_NAME: Final = "lmqConsumerOffset.json"
#: The valid queue ids on the wire.
_QUEUE_IDS: Final = range(1 << 31)


@record
class OffsetContent:
    """The content of the file: `topic@group` to queue id to offset."""

    data_version: DataVersion = DataVersion()
    #: Integers; an earlier release wrote some with more than 64 bits.
    offset_table: Mapping[str, Mapping[int, object]]


@record
class LightOffsetContent:
    """The content of the file of a broker with light queues."""

    data_version: DataVersion = DataVersion()
    #: `topic@group` to offset, of groups that only read light queues.
    lmq_offset_table: Mapping[str, object] = dataclasses.field(default_factory=dict)
    offset_table: Mapping[str, Mapping[int, object]] = dataclasses.field(default_factory=dict)


class OffsetFile:
    """The file, and its table."""

    def __init__(self, path: Path, offsets: Offsets, clock: Clock, *, has_lights: bool = False) -> None:
        """With `has_lights` the file is another one in that folder, and the one at `path` is only read if that does not
        exist, so that groups keep their offsets when light queues are enabled."""
        self._offsets = offsets
        self._has_lights = has_lights
        plain = TableFile(path, OffsetContent, lambda: self._content, clock)
        self._light_path = path.with_name(_LIGHT_NAME)
        light = TableFile(self._light_path, LightOffsetContent, lambda: self._light_content, clock)
        self._plain = plain
        self._light = light
        self._file: TableFile[OffsetContent] | TableFile[LightOffsetContent] = light if has_lights else plain
        self._saved_commits = offsets.commits

    def load(self, has_queue: Callable[[str, int], bool], end_of: Callable[[str, int], int]) -> None:
        """Read the file, cut offsets back to the ends of their queues, and pass them to the data plane.

        A queue exists if its topic has it, or if it has messages. Blocks; called before the first send. Raises
        `ConfigError` naming the file.
        """
        found = self._found()
        if found is None:
            return
        table, cut, dropped = _cut(found, has_queue, end_of)
        self._offsets.load(table)
        self._saved_commits = self._offsets.commits
        if cut:
            log.warning("cut back %d offsets beyond the end of their queue", cut)
        if dropped:
            log.warning("dropped %d offsets of unknown queues", dropped)
        if cut or dropped:
            self._file.save_now()

    def _found(self) -> Mapping[str, Mapping[int, int]] | None:
        """Return the table on the disk; `None` if there is none."""
        if self._has_lights and (light := self._light.load(_checked_light)) is not None:
            self._light.forget(_DERIVED)
            return _checked_light(light)
        if not self._has_lights and self._light_path.exists():
            log.warning("enableLmq is off, so the offsets in %s are not used", self._light_path)
        if (plain := self._plain.load(_checked)) is None:
            return None
        self._plain.forget(_DERIVED)
        return _checked(plain)

    @property
    def version(self) -> DataVersion:
        """The version of the table in the file."""
        return self._file.version

    @property
    def is_saved(self) -> bool:
        """True if nothing was committed since the last write."""
        return self._offsets.commits == self._saved_commits

    async def save(self) -> None:
        """Write the file if something was committed since the last write. Raises `StoreError`."""
        # Read before the snapshot, which may contain more commits but never fewer.
        commits = self._offsets.commits
        if commits != self._saved_commits:
            await self._file.save()
            self._saved_commits = commits

    def _content(self, version: DataVersion) -> OffsetContent:
        return OffsetContent(data_version=version, offset_table=self._offsets.snapshot()[1])

    def _light_content(self, version: DataVersion) -> LightOffsetContent:
        plain, light = light_offsets.split(self._offsets.snapshot()[1])
        return LightOffsetContent(data_version=version, lmq_offset_table=light, offset_table=plain)


def _checked_light(content: LightOffsetContent) -> Mapping[str, Mapping[int, int]]:
    """Return all offsets of a file, with integer offsets. Raises `DecodeError`."""
    light = {key: _integer(key, offset) for key, offset in content.lmq_offset_table.items()}
    return light_offsets.joined(_checked(content), light)


def _checked(content: OffsetContent | LightOffsetContent) -> Mapping[str, Mapping[int, int]]:
    """Return the table of ordinary groups, with integer offsets. Raises `DecodeError`."""
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
    """Cut offsets to their queues; return the table, and the numbers of cut offsets and of unknown queues."""
    cut = dropped = 0
    result: dict[str, dict[int, int]] = {}
    for key, queues in table.items():
        topic = key.partition("@")[0]
        for queue_id, offset in queues.items():
            end = end_of(topic, queue_id) if queue_id in _QUEUE_IDS else 0
            if end == 0 and not has_queue(topic, queue_id):
                dropped += 1
            # Apache writes -1 for an unknown position.
            elif offset >= 0:
                cut += offset > end
                result.setdefault(key, {})[queue_id] = min(offset, end)
    return result, cut, dropped
