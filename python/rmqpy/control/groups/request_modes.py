"""Request modes: whether the members of a group pull or pop a topic, in `messageRequestMode.json`.

Owns the modes that were set; all others are the broker's default. Threads: the event loop's; the file is written in a
worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rmqpy.clock import Clock
from rmqpy.control.tables.file import TableFile
from rmqpy.control.tables.named import NamedTable
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.assignments import MessageRequestMode, MessageRequestModes
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.server import Refused

#: Modes that may be set.
MODES_MAX: Final = 100_000


class RequestModes(NamedTable[MessageRequestMode, MessageRequestModes]):
    """All modes that were set."""

    member = "messageRequestModeMap"

    def __init__(self, path: Path, clock: Clock, *, is_copy: bool = False) -> None:
        file = TableFile(path, MessageRequestModes, self._snapshot, clock, self._ended)
        super().__init__(file, (), is_copy=is_copy)

    def load(self) -> None:
        """Read the file. Blocks; raises `ConfigError` naming it."""
        if (found := self._file.load()) is not None:
            self._entries.load(by_name(found))

    def of(self, topic: str, group: str) -> MessageRequestMode | None:
        """The mode that was set; None where none was."""
        return self.table.get(_name(topic, group))

    async def set(self, mode: MessageRequestMode) -> None:
        """Set a mode, durably. Raises as `put` does, and `Refused` where there are too many."""
        if self._name(mode) not in self.next_table and len(self.next_table) >= MODES_MAX:
            remark = f"{MODES_MAX} request modes are set, which is the maximum"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        await self.put(mode)

    async def copy_all(self, content: MessageRequestModes) -> None:
        """Become a copy of another broker's modes. Raises `StoreError`."""
        entries = by_name(content)
        if entries != self.next_table:
            await self.copy(entries, content.data_version)

    def content(self) -> MessageRequestModes:
        """All modes, as in the file."""
        return _content(self.table)

    def _snapshot(self) -> Callable[[DataVersion], MessageRequestModes]:
        modes = self._entries.snapshot()
        return lambda version: _content(modes)

    @staticmethod
    def _name(entry: MessageRequestMode) -> str:
        return _name(entry.topic, entry.consumer_group)

    def _publish(self, entry: MessageRequestMode) -> None:
        """The data plane serves both modes."""

    def _retract(self, name: str) -> None:
        """The data plane serves both modes."""


def by_name(content: MessageRequestModes) -> dict[str, MessageRequestMode]:
    """Modes by topic and group."""
    return {
        _name(topic, group): mode
        for topic, groups in content.message_request_mode_map.items()
        for group, mode in groups.items()
    }


def _name(topic: str, group: str) -> str:
    return f"{topic}@{group}"


def _content(modes: Mapping[str, MessageRequestMode]) -> MessageRequestModes:
    topics: dict[str, dict[str, MessageRequestMode]] = {}
    for mode in modes.values():
        topics.setdefault(mode.topic, {})[mode.consumer_group] = mode
    return MessageRequestModes(message_request_mode_map=topics)
