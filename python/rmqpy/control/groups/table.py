"""The group table: `subscriptionGroup.json`, and what the data plane knows of groups.

Owns the configuration of every consumer group and which topics a group may not read. Invariant: what somebody has
configured is in the file before it is used. Threads: the event loop's; the file is written in a worker.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from rmqpy.clock import Clock
from rmqpy.config import files
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.tables import unknown_fields
from rmqpy.control.tables.saver import Saver
from rmqpy.control.tables.unknown_fields import UnknownFields
from rmqpy.control.tables.versions import first_version, next_version
from rmqpy.errors import DecodeError, StoreError
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.requests.groups import GroupTable, SubscriptionGroup
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.server import Refused

log = logging.getLogger(__name__)

#: Groups that clients may create by using them; administrators may go beyond.
GROUPS_MAX: Final = 50_000
#: The bit of the forbidden table that takes away reading.
_FORBIDDEN_READ: Final = 1 << 2


_INT32: Final = range(-(1 << 31), 1 << 31)
#: Queues of a group's retry topic.
RETRY_QUEUES_MAX: Final = 1_024


def fault(group: SubscriptionGroup) -> str | None:
    """What is wrong with a configuration, whoever it comes from; None when nothing is."""
    if not (0 <= group.retry_queue_nums <= RETRY_QUEUES_MAX):
        return f"A group has from 0 to {RETRY_QUEUES_MAX} retry queues, not {group.retry_queue_nums}."
    for number in (group.retry_max_times, group.group_sys_flag):
        if number not in _INT32:
            return f"The number {number} has more than 32 bits."
    if group.broker_id < 0 or group.which_broker_when_consume_slowly < 0:
        return "The id of a broker is not negative."
    return None


class GroupSink(Protocol):
    """The part of the data plane's metadata that holds groups."""

    def put_group(
        self,
        name: str,
        *,
        consume_enabled: bool = True,
        broadcast_enabled: bool = True,
        retry_max: int = 16,
        retry_queues: int = 1,
        sys_flag: int = 0,
        broker_id: int = 0,
        broker_id_when_slow: int = 1,
    ) -> None: ...
    def remove_group(self, name: str) -> None: ...
    def forbid(self, group: str, topic: str, is_forbidden: bool) -> None: ...


class Groups:
    """All subscription groups of this broker."""

    def __init__(self, path: Path, sink: GroupSink, clock: Clock) -> None:
        self._path = path
        self._saver = Saver(path, self._snapshot)
        self._sink = sink
        self._clock = clock
        self._table = {name: SubscriptionGroup(group_name=name) for name in names.SYSTEM_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}
        self._version = first_version(clock)
        self._unknown = UnknownFields()
        #: Groups in the table that are not in the file yet, and by how many callers.
        self._unsaved: Counter[str] = Counter()

    def load(self) -> None:
        """Read the file and publish every group. Blocks; raises `ConfigError` naming the file."""
        loaded = files.load(self._path, _parse)
        if loaded is not None:
            found, self._unknown = loaded
            self._table |= found.subscription_group_table
            self._forbidden = {group: dict(topics) for group, topics in found.forbidden_table.items()}
            self._version = found.data_version
        for group in self._table.values():
            self._publish(group)
        for name, topics in self._forbidden.items():
            for topic in topics:
                self._sink.forbid(name, topic, not self.is_readable(name, topic))

    @property
    def table(self) -> Mapping[str, SubscriptionGroup]:
        """Every group by name."""
        return MappingProxyType(self._table)

    def existing(self, name: str) -> SubscriptionGroup:
        """The group an administrator asks about. Raises `Refused` when there is none."""
        group = self._table.get(name)
        if group is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {name} not exist")
        return group

    @property
    def forbidden(self) -> Mapping[str, Mapping[str, int]]:
        """Group to topic to bits."""
        return MappingProxyType(self._forbidden)

    @property
    def version(self) -> DataVersion:
        """Moves with every change."""
        return self._version

    async def put(self, *groups: SubscriptionGroup) -> None:
        """Create groups or replace their configuration; durable on return, then usable.

        Raises `StoreError` when the file cannot be written; the table is then as before.
        """
        changed = [group for group in groups if self._table.get(group.group_name) != group]
        if not changed:
            # Another caller's equal change may be on its way to the disk; that caller goes on, and publishes, first.
            if any(group.group_name in self._unsaved for group in groups):
                await self._saver.save()
            return
        before = {group.group_name: self._table.get(group.group_name) for group in changed}
        self._table |= {group.group_name: group for group in changed}
        self._unsaved.update(before.keys())
        try:
            await self._save()
        except StoreError:
            for group in changed:
                self._restore(group, before[group.group_name])
            raise
        finally:
            self._unsaved -= Counter(before.keys())
        for group in changed:
            if group.group_name in self._table:
                self._publish(group)

    async def remove(self, name: str) -> bool:
        """Forget a group and what it was forbidden; whether there was one."""
        if self._table.pop(name, None) is None:
            return False
        self._unknown = self._unknown.without("subscriptionGroupTable", name)
        self._sink.remove_group(name)
        for topic in self._forbidden.pop(name, {}):
            self._sink.forbid(name, topic, False)
        await self._save()
        return True

    def may_exist(self, name: str, config: BrokerConfig) -> bool:
        """Whether there is such a group, or its first use may create it."""
        if name in self._table:
            return True
        is_system = config.creates_system_groups and name.startswith(names.SYSTEM_GROUP_PREFIX)
        return (
            (config.auto_create_groups or is_system)
            and names.group_fault(name) is None
            and len(self._table) < GROUPS_MAX
        )

    async def ensure(self, name: str, config: BrokerConfig) -> SubscriptionGroup | None:
        """The group, created on first use where that is allowed; None where it is not.

        One that nobody has configured is used though it cannot be written: a full disk can be read, and after a restart
        the next use makes the same group again. Raises `StoreError` for any other that cannot be written.
        """
        if not self.may_exist(name, config):
            return None
        if name not in self._table:
            log.info("group %s created on first use", name)
        made = SubscriptionGroup(group_name=name)
        group = self._table.get(name, made)
        try:
            await self.put(group)
        except StoreError as error:
            if group != made:
                raise
            log.warning("group %s is in memory alone until the next change of a group: %s", name, error)
            self._publish(self._table.setdefault(name, made))
        return self._table.get(name)

    def is_readable(self, group: str, topic: str) -> bool:
        """Whether the group may read the topic."""
        return not self._forbidden.get(group, {}).get(topic, 0) & _FORBIDDEN_READ

    async def set_readable(self, group: str, topic: str, is_readable: bool) -> None:
        """Let a group read a topic, or no longer; other topics of the group stay as they are."""
        topics = self._forbidden.setdefault(group, {})
        bits = topics.get(topic, 0)
        topics[topic] = bits & ~_FORBIDDEN_READ if is_readable else bits | _FORBIDDEN_READ
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self._forbidden[group]
        self._sink.forbid(group, topic, not is_readable)
        await self._save()

    async def _save(self) -> None:
        self._version = next_version(self._version, self._clock)
        await self._saver.save()

    def _restore(self, group: SubscriptionGroup, before: SubscriptionGroup | None) -> None:
        if self._table.get(group.group_name) is not group:
            return
        if before is None:
            del self._table[group.group_name]
        else:
            self._table[group.group_name] = before

    def _snapshot(self) -> Callable[[], object]:
        table = GroupTable(
            data_version=self._version,
            subscription_group_table=dict(self._table),
            forbidden_table={group: dict(topics) for group, topics in self._forbidden.items()},
        )
        unknown = self._unknown
        return lambda: unknown.put_back(json_tree(table))

    def _publish(self, group: SubscriptionGroup) -> None:
        self._sink.put_group(
            group.group_name,
            consume_enabled=group.consume_enable,
            broadcast_enabled=group.consume_broadcast_enable,
            retry_max=group.retry_max_times,
            retry_queues=group.retry_queue_nums,
            sys_flag=group.group_sys_flag,
            broker_id=group.broker_id,
            broker_id_when_slow=group.which_broker_when_consume_slowly,
        )


def _parse(text: str) -> tuple[GroupTable, UnknownFields]:
    table, unknown = unknown_fields.read(GroupTable, text)
    for name, group in table.subscription_group_table.items():
        if reason := fault(group):
            raise DecodeError(f"group {name}: {reason}")
    return table, unknown
