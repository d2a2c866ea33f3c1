"""The topic table: `topics.json`, what the data plane knows of topics, and who is told about a change.

Owns all topic configurations of the broker. Invariant: a topic is in its file before the data plane may use it,
so no acknowledged message can lie in a topic that a crash forgets.
Threads: the event loop's; the file is written in a worker.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from rmqpy.clock import Clock
from rmqpy.config import files
from rmqpy.control.tables import unknown_fields
from rmqpy.control.tables.attributes import MESSAGE_TYPE
from rmqpy.control.tables.saver import Saver
from rmqpy.control.tables.unknown_fields import UnknownFields
from rmqpy.control.tables.versions import first_version, next_version
from rmqpy.errors import DecodeError, StoreError
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import json_tree, record
from rmqpy.protocol.topics import DataVersion, Permission, TopicConfig, TopicFilterType
from rmqpy.remoting.server import Refused

log = logging.getLogger(__name__)

#: Queues of one topic; sixteen times what Apache's largest built-in topic has.
QUEUES_MAX: Final = 16_384
#: Topics that sends and heartbeats may create; administrators may go beyond.
TOPICS_MAX: Final = 50_000


_INT32: Final = range(-(1 << 31), 1 << 31)


def fault(topic: TopicConfig) -> str | None:
    """What is wrong with a configuration, whoever it comes from; None when nothing is."""
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


class TopicSink(Protocol):
    """The part of the data plane's metadata that holds topics."""

    def put_topic(
        self,
        name: str,
        *,
        read_queues: int,
        write_queues: int,
        permission: int,
        sys_flag: int = 0,
        is_ordered: bool = False,
        multi_tag: bool = False,
        message_type: str = "",
    ) -> None: ...
    def remove_topic(self, name: str) -> None: ...


class Topics:
    """All topics of this broker."""

    def __init__(self, path: Path, sink: TopicSink, built_in: Iterable[TopicConfig], clock: Clock) -> None:
        self._path = path
        self._saver = Saver(path, self._snapshot)
        self._sink = sink
        self._clock = clock
        self._table = {topic.topic_name: topic for topic in built_in}
        self._version = first_version(clock)
        self._unknown = UnknownFields()
        #: Topics in the table that are not in the file yet, and by how many callers.
        self._unsaved: Counter[str] = Counter()
        #: Names the system keeps for itself.
        self.system = names.SYSTEM_TOPICS | self._table.keys()
        #: Called with the topics that are new or different, once they are durable.
        self.on_change: Callable[[list[TopicConfig]], None] = lambda changed: None

    def load(self) -> None:
        """Read the file, publish every topic, and write the file again: its version moves with each start.

        Blocks; for the start of the broker. Raises `ConfigError` naming the file.
        """
        loaded = files.load(self._path, _parse)
        if loaded is not None:
            found, self._unknown = loaded
            # What was stored wins over what is built in: an administrator may have changed it. The template for new
            # topics goes with its setting, or clients would still be told that they may send to any topic.
            has_template = names.AUTO_CREATE_TOPIC in self._table
            self._table |= found.topic_config_table
            if not has_template:
                self._table.pop(names.AUTO_CREATE_TOPIC, None)
            self._version = found.data_version
        self._version = next_version(self._version, self._clock)
        self._saver.save_now()
        for topic in self._table.values():
            self._publish(topic)

    @property
    def table(self) -> Mapping[str, TopicConfig]:
        """Every topic by name."""
        return MappingProxyType(self._table)

    def existing(self, name: str) -> TopicConfig:
        """The topic an administrator asks about. Raises `Refused` when there is none."""
        topic = self._table.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    @property
    def version(self) -> DataVersion:
        """Moves with every change."""
        return self._version

    def is_system(self, name: str) -> bool:
        """Whether clients and administrators must leave the topic alone."""
        return name in self.system or names.is_system_topic(name)

    async def put(self, *topics: TopicConfig) -> None:
        """Create topics or replace their configuration. On return they are durable, usable and announced.

        Topics that are what they were change nothing. Raises `StoreError` when the file cannot be written;
        the table is then as before.
        """
        changed = [topic for topic in topics if self._table.get(topic.topic_name) != topic]
        if not changed:
            # Another caller's equal change may be on its way to the disk; that caller goes on, and publishes, first.
            if any(topic.topic_name in self._unsaved for topic in topics):
                await self._saver.save()
            return
        before = {topic.topic_name: self._table.get(topic.topic_name) for topic in changed}
        self._table |= {topic.topic_name: topic for topic in changed}
        self._unsaved.update(before.keys())
        try:
            await self._save()
        except StoreError:
            for topic in changed:
                self._restore(topic, before[topic.topic_name])
            raise
        finally:
            self._unsaved -= Counter(before.keys())
        for topic in changed:
            # A removal may have overtaken it while the file was written; a later change publishes itself, later.
            if topic.topic_name in self._table:
                self._publish(topic)
        self.on_change(changed)

    async def ensure_derived(self, name: str, queues: int, *, is_ordered: bool = False) -> None:
        """The retry or DLQ topic of a group; with 0 queues the group has none. Raises `StoreError`."""
        if queues > 0:
            made = TopicConfig(
                topic_name=name, read_queue_nums=queues, write_queue_nums=queues, order=is_ordered
            )
            await self.put(self._table.get(name, made))

    async def remove(self, *gone: str) -> list[TopicConfig]:
        """Forget topics; those there were. Their queues and offsets are the caller's to remove."""
        removed = [topic for name in gone if (topic := self._table.pop(name, None))]
        if removed:
            for topic in removed:
                self._sink.remove_topic(topic.topic_name)
                self._unknown = self._unknown.without("topicConfigTable", topic.topic_name)
            await self._save()
        return removed

    async def mark_ordered(self, names: Iterable[str]) -> None:
        """Make those that there are order topics; none ceases to be one by being left out. Raises `StoreError`."""
        known = (self._table.get(name) for name in names)
        await self.put(
            *(dataclasses.replace(topic, order=True) for topic in known if topic and not topic.order)
        )

    def touch(self) -> None:
        """Move the version though no topic changed: what is registered did, as with the broker's permission."""
        self._version = next_version(self._version, self._clock)

    async def create_for_send(
        self, name: str, template_name: str, queues: int, sys_flag: int, *, auto_create: bool
    ) -> TopicConfig | None:
        """The topic a send asks for, made from a template; None when it may not be made. Raises `StoreError`."""
        if name in self._table:
            await self.put(self._table[name])
            return self._table.get(name)
        if names.topic_fault(name) or self.is_system(name) or len(self._table) >= TOPICS_MAX:
            return None
        template = self._table.get(template_name)
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

    async def _save(self) -> None:
        self._version = next_version(self._version, self._clock)
        await self._saver.save()

    def _restore(self, topic: TopicConfig, before: TopicConfig | None) -> None:
        if self._table.get(topic.topic_name) is not topic:
            return
        if before is None:
            del self._table[topic.topic_name]
        else:
            self._table[topic.topic_name] = before

    def _snapshot(self) -> Callable[[], object]:
        content = TopicContent(data_version=self._version, topic_config_table=dict(self._table))
        unknown = self._unknown
        return lambda: unknown.put_back(json_tree(content))

    def _publish(self, topic: TopicConfig) -> None:
        self._sink.put_topic(
            topic.topic_name,
            read_queues=topic.read_queue_nums,
            write_queues=topic.write_queue_nums,
            permission=topic.perm,
            sys_flag=topic.topic_sys_flag,
            is_ordered=topic.order,
            multi_tag=topic.topic_filter_type is TopicFilterType.MULTI_TAG,
            message_type=topic.attributes.get(MESSAGE_TYPE, ""),
        )


def _parse(text: str) -> tuple[TopicContent, UnknownFields]:
    content, unknown = unknown_fields.read(TopicContent, text)
    for name, topic in content.topic_config_table.items():
        if reason := fault(topic):
            raise DecodeError(f"topic {name}: {reason}")
    return content, unknown


def built_in_topics(
    *,
    cluster: str,
    broker: str,
    default_queues: int,
    auto_create: bool,
    is_cluster_open: bool,
    is_broker_open: bool,
    trace_topic: str | None,
    revive_queues: int,
) -> list[TopicConfig]:
    """The topics that exist after the first start, as Apache's broker makes them."""

    def topic(name: str, queues: int, perm: int = Permission.READ_WRITE) -> TopicConfig:
        return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)

    built_in = [
        topic("SELF_TEST_TOPIC", 1),
        topic("BenchmarkTest", 1_024),
        topic(cluster, 16, Permission.INHERIT | (Permission.READ_WRITE if is_cluster_open else 0)),
        topic(broker, 1, Permission.INHERIT | (Permission.READ_WRITE if is_broker_open else 0)),
        topic("OFFSET_MOVED_EVENT", 1),
        topic(names.SCHEDULE_TOPIC, 18),
        topic(f"{cluster}_REPLY_TOPIC", 1),
        topic(f"rmq_sys_REVIVE_LOG_{cluster}", revive_queues),
        topic(f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, Permission.INHERIT),
        topic("RMQ_SYS_TRANS_HALF_TOPIC", 1),
        topic("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1),
    ]
    if auto_create:
        built_in.append(
            topic(names.AUTO_CREATE_TOPIC, default_queues, Permission.READ_WRITE | Permission.INHERIT)
        )
    if trace_topic:
        built_in.append(topic(trace_topic, 1))
    return built_in
