"""Static topics: `topicQueueMapping.json`, the mappings of logical queues that the data plane knows.

Owns the mappings of this broker. A mapping belongs to a topic: it is published while the topic exists. Threads: the
event loop's; the file is written in a worker.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Container, Mapping
from pathlib import Path

from rmqpy._native import Metadata
from rmqpy.clock import Clock
from rmqpy.control.tables.file import TableFile
from rmqpy.control.tables.named import NamedTable
from rmqpy.errors import DecodeError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import record
from rmqpy.protocol.static_topics import TopicMapping, fault, merged
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.server import Refused

log = logging.getLogger(__name__)


@record
class MappingContent:
    """The content of the file."""

    data_version: DataVersion = DataVersion()
    topic_queue_mapping_info_map: dict[str, TopicMapping] = dataclasses.field(default_factory=dict)


class StaticTopics(NamedTable[TopicMapping, MappingContent]):
    """The mappings of all static topics of this broker."""

    member = "topicQueueMappingInfoMap"

    def __init__(
        self,
        path: Path,
        broker: str,
        metadata: Metadata,
        clock: Clock,
        *,
        is_copy: bool = False,
        on_change: Callable[[list[str]], None] = lambda topics: None,
    ) -> None:
        """`on_change` gets the topics of changed mappings once those are durable and in use."""
        super().__init__(
            TableFile(path, MappingContent, self._snapshot, clock, self._ended), (), is_copy=is_copy
        )
        self._broker = broker
        self._metadata = metadata
        self._on_change = on_change

    def load(self, topics: Container[str]) -> None:
        """Read the file, and publish the mappings of existing topics. A crash during the deletion of a topic leaves its
        mapping, which a later topic of that name must not get. Blocks; raises `ConfigError` naming the file."""
        if (found := self._file.load(self._check)) is None:
            return
        mappings = found.topic_queue_mapping_info_map
        stale = sorted(name for name in mappings if name not in topics)
        if stale:
            log.warning("dropping the mappings of static topics that do not exist: %s", ", ".join(stale[:10]))
        self._entries.load({name: mapping for name, mapping in mappings.items() if name not in stale})
        for mapping in self.table.values():
            self._publish(mapping)

    def checked(self, wanted: TopicMapping, *, is_forced: bool) -> TopicMapping:
        """Return the mapping to store, merged with the known one. Raises `Refused` with the reason."""
        try:
            if reason := fault(wanted, self._broker):
                raise ValueError(reason)
            entry = merged(self.next_table.get(wanted.topic), wanted, is_forced=is_forced)
            if reason := fault(entry, self._broker):
                raise ValueError(reason)
        except ValueError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return entry

    async def copy_all(self, mappings: Mapping[str, TopicMapping], version: DataVersion) -> None:
        """Become a copy of another broker's mappings. Raises `StoreError`, and `DecodeError` for invalid ones."""
        if mappings != self.next_table:
            for mapping in mappings.values():
                if reason := fault(mapping, self._broker):
                    raise DecodeError(f"static topic {mapping.topic[:80]}: {reason}")
            await self.copy(mappings, version)

    def _check(self, content: MappingContent) -> None:
        for name, mapping in content.topic_queue_mapping_info_map.items():
            if reason := fault(mapping, self._broker):
                raise DecodeError(f"static topic {name}: {reason}")

    def _snapshot(self) -> Callable[[DataVersion], MappingContent]:
        table = self._entries.snapshot()
        return lambda version: MappingContent(data_version=version, topic_queue_mapping_info_map=table)

    @staticmethod
    def _name(entry: TopicMapping) -> str:
        return entry.topic

    def _publish(self, entry: TopicMapping) -> None:
        self._metadata.put_mapping(
            entry.topic,
            [
                (
                    number,
                    [
                        (
                            segment.queue_id,
                            segment.bname == self._broker,
                            segment.logic_offset,
                            segment.start_offset,
                            segment.end_offset,
                        )
                        for segment in segments
                    ],
                )
                for number, segments in entry.hosted_queues.items()
            ],
        )

    def _retract(self, name: str) -> None:
        self._metadata.remove_mapping(name)

    def _saved(self, entries: list[TopicMapping]) -> None:
        if entries:
            self._on_change([entry.topic for entry in entries])
