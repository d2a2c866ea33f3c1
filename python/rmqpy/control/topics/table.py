"""Topic table: `topics.json`, the topics the data plane knows, and a callback after each change.

Owns all topic configurations of the broker. Threads: the event loop's; the file is written in a worker.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from rmqpy._native import Metadata
from rmqpy.clock import Clock
from rmqpy.control.tables.attributes import is_compacted
from rmqpy.control.tables.file import TableFile
from rmqpy.control.tables.named import NamedTable
from rmqpy.control.tables.unserved import unserved_of_topic, warn
from rmqpy.errors import DecodeError
from rmqpy.plugins import TopicRequest
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import record
from rmqpy.protocol.topics import DataVersion, Permission, TopicConfig
from rmqpy.remoting.server import Refused

log = logging.getLogger(__name__)

#: The most queues of one topic, sixteen times those of Apache's largest built-in topic.
QUEUES_MAX: Final = 16_384
#: The most topics that sends and heartbeats may create; administrators may create more.
TOPICS_MAX: Final = 50_000


_INT32: Final = range(-(1 << 31), 1 << 31)


def fault(topic: TopicConfig) -> str | None:
    """Return the first error in an administrator's or a file's configuration, or `None`."""
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


async def _admit_all(request: TopicRequest) -> None:
    """Admit every topic."""


class Topics(NamedTable[TopicConfig, TopicContent]):
    """All topics of this broker."""

    member = "topicConfigTable"

    def __init__(
        self,
        path: Path,
        metadata: Metadata,
        built_in: Iterable[TopicConfig],
        clock: Clock,
        *,
        is_copy: bool = False,
        has_lights: bool = False,
        on_change: Callable[[list[TopicConfig]], None] = lambda changed: None,
        on_remove: Callable[[str], None] = lambda name: None,
        set_compacted: Callable[[str, bool], None] = lambda name, is_compacted: None,
        admit: Callable[[TopicRequest], Awaitable[None]] = _admit_all,
    ) -> None:
        """`has_lights`: every name of a light queue is a topic. `on_change` gets changed topics once they are durable,
        `on_remove` the name of a removed one. `set_compacted` sets whether the store keeps the newest message of each
        key. `admit` raises `Refused` for a topic that a policy refuses."""
        file = TableFile(path, TopicContent, self._snapshot, clock, self._ended)
        super().__init__(file, built_in, is_copy=is_copy)
        self._metadata = metadata
        self._has_lights = has_lights
        #: Names reserved for the system.
        self.system = names.SYSTEM_TOPICS | self.table.keys()
        self._on_change = on_change
        self._on_remove = on_remove
        self._set_compacted = set_compacted
        self._admit = admit
        #: Topics whose queues and offsets are being deleted.
        self._leaving: dict[str, asyncio.Event] = {}

    def load(self) -> None:
        """Read the file, publish all topics, and write the file again, because its version grows with each start.

        Blocks; for the start of the broker. Raises `ConfigError` naming the file.
        """
        found = self._file.load(_check)
        if found is not None:
            # Stored topics take precedence over built-in ones, because an administrator may have changed them. The
            # template for new topics follows its setting, or clients would believe that they may send to any topic.
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
        """Like `NamedTable.put`, after the remains of an earlier topic of the same name are deleted. Light queues are
        not stored."""
        stored = [entry for entry in entries if not self.has_light(entry.topic_name)]
        wanted = [entry.topic_name for entry in stored]
        while leaving := next((self._leaving[name] for name in wanted if name in self._leaving), None):
            await leaving.wait()
        return await super().put(*stored)

    @asynccontextmanager
    async def leaving(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Prevent the creation of topics with these names while the remains of earlier ones are deleted, which would
        include the new topics' queues and messages."""
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

    def has_light(self, name: str) -> bool:
        """Return whether the name is that of a light queue, and the broker has those."""
        return self._has_lights and names.is_light(name)

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic, or a light queue as one; `None` if it does not exist."""
        if self.has_light(name):
            return TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)
        return self.table.get(name)

    def existing(self, name: str) -> TopicConfig:
        """Return the topic of a query. Raises `Refused` if it does not exist."""
        topic = self.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    def has_queue(self, name: str, queue_id: int) -> bool:
        """Return whether the topic has the queue, for reading or writing."""
        return 0 <= queue_id < self.queue_count(name)

    def is_system(self, name: str) -> bool:
        """Return whether clients and administrators must not change the topic."""
        return name in self.system or names.is_system_topic(name)

    async def ensure_derived(
        self, name: str, queues: int, *, is_ordered: bool = False, is_grown: bool = False
    ) -> None:
        """Create an internal topic, such as a group's retry topic; with 0 queues, create none. `is_grown` adds queues
        to an existing one with fewer. Raises `StoreError`."""
        if queues > 0 and not self.is_copy:
            made = TopicConfig(
                topic_name=name, read_queue_nums=queues, write_queue_nums=queues, order=is_ordered
            )
            known = self.next_table.get(name, made)
            if is_grown and max(known.read_queue_nums, known.write_queue_nums) < queues:
                known = dataclasses.replace(known, read_queue_nums=queues, write_queue_nums=queues)
            await self.put(known)

    def queue_count(self, name: str) -> int:
        """Return the number of queues of a topic, readable or writable; 0 if it does not exist."""
        topic = self.get(name)
        return 0 if topic is None else max(topic.read_queue_nums, topic.write_queue_nums)

    async def mark_ordered(self, names: Iterable[str]) -> None:
        """Make existing topics ordered; topics that are not listed keep their type. Raises `StoreError`."""
        if self.is_copy:
            return
        known = (self.next_table.get(name) for name in names)
        await self.put(
            *(dataclasses.replace(topic, order=True) for topic in known if topic and not topic.order)
        )

    def touch(self) -> None:
        """Increase the version, because a property of the registration has changed, such as the broker's permission."""
        self._file.touch()

    async def create_for_send(
        self, name: str, template_name: str, queues: int, sys_flag: int, *, auto_create: bool
    ) -> TopicConfig | None:
        """Return the topic of a send, created from a template; `None` if it may not be created. Raises `StoreError`,
        and `Refused` if a policy refuses it."""
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
        if not self.is_system(name):
            await self._admit(TopicRequest(name, count, count, {}, is_new=True, origin="client"))
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
        # First, so that the store knows every queue that a request creates.
        self._set_compacted(entry.topic_name, is_compacted(entry.attributes))
        self._metadata.put_topic(entry)

    def _retract(self, name: str) -> None:
        self._metadata.remove_topic(name)
        self._on_remove(name)

    def _saved(self, entries: list[TopicConfig]) -> None:
        if entries:
            self._on_change(entries)


def _check(content: TopicContent) -> None:
    for name, topic in content.topic_config_table.items():
        if reason := fault(topic):
            raise DecodeError(f"topic {name}: {reason}")
