"""Topic table: `topics.json`, the topics the data plane knows, and the call that follows each change.

Owns all topic configurations of the broker. Threads: the event loop's; the file is written in a worker.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from rmqpy._native import Metadata
from rmqpy.clock import Clock
from rmqpy.control.tables.file import TableFile
from rmqpy.control.tables.named import NamedTable
from rmqpy.control.tables.unserved import unserved_of_topic, warn
from rmqpy.errors import DecodeError
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import record
from rmqpy.protocol.topics import DataVersion, Permission, TopicConfig
from rmqpy.remoting.server import Refused

log = logging.getLogger(__name__)

#: Queues of one topic; sixteen times what Apache's largest built-in topic has.
QUEUES_MAX: Final = 16_384
#: Topics that sends and heartbeats may create; administrators may go beyond.
TOPICS_MAX: Final = 50_000


_INT32: Final = range(-(1 << 31), 1 << 31)


def fault(topic: TopicConfig) -> str | None:
    """The first thing wrong with a configuration of an administrator or a file; None when nothing is."""
    if not (0 <= topic.perm < 8):
        return f"The perm {topic.perm} must be from 0 to 7."
    for queues in (topic.read_queue_nums, topic.write_queue_nums):
        if not (0 <= queues <= QUEUES_MAX):
            return f"A topic has from 0 to {QUEUES_MAX} queues, not {queues}."
    if topic.topic_sys_flag not in _INT32:
        return f"The topicSysFlag {topic.topic_sys_flag} has more than 32 bits."
    return None


@record
class TopicContent:
    """The content of the file."""

    data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = dataclasses.field(default_factory=dict)


class Topics(NamedTable[TopicConfig, TopicContent]):
    """All topics of this broker."""

    member = "topicConfigTable"

    def __init__(self, path: Path, metadata: Metadata, built_in: Iterable[TopicConfig], clock: Clock) -> None:
        super().__init__(TableFile(path, TopicContent, self._snapshot, clock, self._ended), built_in)
        self._metadata = metadata
        #: Names the system keeps for itself.
        self.system = names.SYSTEM_TOPICS | self.table.keys()
        #: Called with the topics that are new or different, once they are durable.
        self.on_change: Callable[[list[TopicConfig]], None] = lambda changed: None
        #: Called with the name of a topic that is gone.
        self.on_remove: Callable[[str], None] = lambda name: None
        #: Topics whose queues and offsets are being deleted.
        self._leaving: dict[str, asyncio.Event] = {}

    def load(self) -> None:
        """Read the file, publish every topic, and write the file again: its version moves with each start.

        Blocks; for the start of the broker. Raises `ConfigError` naming the file.
        """
        found = self._file.load(_check)
        if found is not None:
            # What was stored wins over what is built in: an administrator may have changed it. The template for new
            # topics goes with its setting, or clients would still be told that they may send to any topic.
            has_template = names.AUTO_CREATE_TOPIC in self.table
            self._entries.load(
                {
                    name: topic
                    for name, topic in found.topic_config_table.items()
                    if name != names.AUTO_CREATE_TOPIC or has_template
                }
            )
        if not self.is_copy:
            self._file.save_now()
        for topic in self.table.values():
            self._publish(topic)
        warn("topic", self.table, unserved_of_topic)

    async def put(self, *entries: TopicConfig) -> list[TopicConfig]:
        """As of every table; behind the deletion of what an earlier topic of the same name has left."""
        wanted = [entry.topic_name for entry in entries]
        while leaving := next((self._leaving[name] for name in wanted if name in self._leaving), None):
            await leaving.wait()
        return await super().put(*entries)

    @asynccontextmanager
    async def leaving(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Keep topics of these names from being made: what an earlier one has left is deleted meanwhile, and the queues
        and messages of a new one would go with it."""
        held: list[str] = []
        try:
            for name in sorted(set(names)):
                while (leaving := self._leaving.get(name)) is not None:
                    await leaving.wait()
                self._leaving[name] = asyncio.Event()
                held.append(name)
            yield
        finally:
            for name in held:
                self._leaving.pop(name).set()

    def existing(self, name: str) -> TopicConfig:
        """The topic an administrator asks about. Raises `Refused` when there is none."""
        topic = self.table.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    def has_queue(self, name: str, queue_id: int) -> bool:
        """Whether the topic has the queue, for reading or for writing."""
        topic = self.table.get(name)
        return topic is not None and 0 <= queue_id < max(topic.read_queue_nums, topic.write_queue_nums)

    def is_system(self, name: str) -> bool:
        """Whether clients and administrators must leave the topic alone."""
        return name in self.system or names.is_system_topic(name)

    async def ensure_derived(self, name: str, queues: int, *, is_ordered: bool = False) -> None:
        """A topic of the broker's own, such as the retry topic of a group; with 0 queues there is none. Raises
        `StoreError`."""
        if queues > 0 and not self.is_copy:
            made = TopicConfig(
                topic_name=name, read_queue_nums=queues, write_queue_nums=queues, order=is_ordered
            )
            await self.put(self.next_table.get(name, made))

    async def mark_ordered(self, names: Iterable[str]) -> None:
        """Make those that there are order topics; none ceases to be one by being left out. Raises `StoreError`."""
        if self.is_copy:
            return
        known = (self.next_table.get(name) for name in names)
        await self.put(
            *(dataclasses.replace(topic, order=True) for topic in known if topic and not topic.order)
        )

    def touch(self) -> None:
        """Move the version though no topic changed: what is registered did, as with the broker's permission."""
        self._file.touch()

    async def create_for_send(
        self, name: str, template_name: str, queues: int, sys_flag: int, *, auto_create: bool
    ) -> TopicConfig | None:
        """The topic a send asks for, made from a template; None when it may not be made. Raises `StoreError`."""
        if name in self.next_table:
            await self.put(self.next_table[name])
            return self.table.get(name)
        if self.is_copy:
            return None
        is_kept = self.is_system(name) and not names.is_trace_topic(name)
        if names.topic_fault(name) or is_kept or len(self.next_table) >= TOPICS_MAX:
            return None
        template = self.table.get(template_name)
        if template is None or not template.perm & Permission.INHERIT:
            return None
        if template_name == names.AUTO_CREATE_TOPIC and not auto_create:
            return None
        count = max(0, min(queues, template.write_queue_nums))
        topic = dataclasses.replace(
            template,
            topic_name=name,
            read_queue_nums=count,
            write_queue_nums=count,
            perm=template.perm & ~Permission.INHERIT,
            topic_sys_flag=sys_flag,
            attributes={},
        )
        await self.put(topic)
        log.info("topic %s created with %d queues by a send", name, count)
        return topic

    def _snapshot(self) -> Callable[[DataVersion], TopicContent]:
        table = self._entries.snapshot()
        return lambda version: TopicContent(data_version=version, topic_config_table=table)

    @staticmethod
    def _name(entry: TopicConfig) -> str:
        return entry.topic_name

    def _publish(self, entry: TopicConfig) -> None:
        self._metadata.put_topic(entry)

    def _retract(self, name: str) -> None:
        self._metadata.remove_topic(name)
        self.on_remove(name)

    def _saved(self, entries: list[TopicConfig]) -> None:
        if entries:
            self.on_change(entries)


def _check(content: TopicContent) -> None:
    for name, topic in content.topic_config_table.items():
        if reason := fault(topic):
            raise DecodeError(f"topic {name}: {reason}")
