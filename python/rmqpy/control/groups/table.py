"""Group table: `subscriptionGroup.json`, and the groups the data plane knows.

Owns the configuration of every consumer group, and the topics that a group must not read. Threads: the event loop's;
the file is written in a worker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rmqpy._native import Metadata
from rmqpy.clock import Clock
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.tables.entries import Entries
from rmqpy.control.tables.file import TableFile
from rmqpy.control.tables.named import NamedTable
from rmqpy.control.tables.unserved import unserved_of_group, warn
from rmqpy.errors import DecodeError, StoreError
from rmqpy.plugins import GroupRequest
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.groups import GroupTable, SubscriptionGroup
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.server import Refused

log = logging.getLogger(__name__)

#: The most groups that clients may create by use; administrators may create more.
GROUPS_MAX: Final = 50_000
#: The bit in the forbidden table that forbids reading.
_FORBIDDEN_READ: Final = 1 << 2


#: The most forbidden topics of one group.
FORBIDDEN_TOPICS_MAX: Final = 1_024
_INT32: Final = range(-(1 << 31), 1 << 31)
#: The most queues of a group's retry topic.
RETRY_QUEUES_MAX: Final = 1_024


def fault(group: SubscriptionGroup) -> str | None:
    """Return the first error in an administrator's or a file's configuration, or `None`."""
    if not (0 <= group.retry_queue_nums <= RETRY_QUEUES_MAX):
        return f"A group has from 0 to {RETRY_QUEUES_MAX} retry queues, not {group.retry_queue_nums}."
    for number in (group.retry_max_times, group.group_sys_flag):
        if number not in _INT32:
            return f"The number {number} has more than 32 bits."
    if group.broker_id < 0 or group.which_broker_when_consume_slowly < 0:
        return "The id of a broker is not negative."
    return None


async def _admit_all(request: GroupRequest) -> None:
    """Admit every group."""


class Groups(NamedTable[SubscriptionGroup, GroupTable]):
    """All consumer groups of this broker."""

    member = "subscriptionGroupTable"

    def __init__(
        self,
        path: Path,
        metadata: Metadata,
        clock: Clock,
        *,
        is_copy: bool = False,
        has_lights: bool = False,
        has_no_master: Callable[[], bool] = lambda: False,
        admit: Callable[[GroupRequest], Awaitable[None]] = _admit_all,
    ) -> None:
        """`has_lights`: every group that reads light queues exists. `has_no_master` returns whether the master is
        unreachable, so that clients may add groups to a copy. `admit` raises `Refused` for a group that a policy
        refuses."""
        file = TableFile(path, GroupTable, self._snapshot, clock, self._ended)
        system = (SubscriptionGroup(group_name=name) for name in names.SYSTEM_GROUPS)
        super().__init__(file, system, is_copy=is_copy)
        self._metadata = metadata
        self._has_lights = has_lights
        self._has_no_master = has_no_master
        self._admit = admit
        self._forbidden: Entries[Mapping[str, int]] = Entries({})

    def load(self) -> None:
        """Read the file and publish all groups. Blocks; raises `ConfigError` naming the file."""
        found = self._file.load(_check)
        if found is not None:
            self._entries.load(found.subscription_group_table)
            self._forbidden.load(found.forbidden_table)
        for group in self.table.values():
            self._publish(group)
        for name in self.forbidden:
            self._publish_forbidden({}, name)
        warn("group", self.table, unserved_of_group)

    def get(self, name: str) -> SubscriptionGroup | None:
        """Return a group; `None` if it does not exist. Groups that read light queues have the default settings."""
        if self._has_light(name):
            return SubscriptionGroup(group_name=name)
        return self.table.get(name)

    def _has_light(self, name: str) -> bool:
        return self._has_lights and names.is_light(name)

    async def put(self, *entries: SubscriptionGroup) -> list[SubscriptionGroup]:
        """Like `NamedTable.put`. Groups that read light queues are not stored."""
        return await super().put(*(entry for entry in entries if not self._has_light(entry.group_name)))

    def existing(self, name: str) -> SubscriptionGroup:
        """Return the group of a query. Raises `Refused` if it does not exist."""
        group = self.get(name)
        if group is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {name} not exist")
        return group

    @property
    def forbidden(self) -> Mapping[str, Mapping[str, int]]:
        """Forbidden bits by group and topic."""
        return MappingProxyType(self._forbidden.saved)

    def may_exist(self, name: str, config: BrokerConfig) -> bool:
        """Return whether the group exists, or its first use may create it."""
        if name in self.next_table or self._has_light(name):
            return True
        if self.is_copy and not self._has_no_master():
            return False
        is_system = config.creates_system_groups and name.startswith(names.SYSTEM_GROUP_PREFIX)
        return (
            (config.auto_create_groups or is_system)
            and names.group_fault(name) is None
            and len(self.next_table) < GROUPS_MAX
        )

    async def ensure(self, name: str, config: BrokerConfig) -> SubscriptionGroup | None:
        """Return the group, created on first use if allowed, else `None`.

        A group with default settings is used even if it cannot be written: consumers can read while the disk is full,
        and the next use creates it again after a restart. A slave keeps such a group until its master answers and
        creates it on first use. Raises `StoreError` for any other group that cannot be written, and `Refused` if a
        policy refuses it.
        """
        if self._has_light(name) or not self.may_exist(name, config):
            return self.get(name)
        made = SubscriptionGroup(group_name=name)
        if name not in self.next_table:
            if not names.is_system_group(name):
                await self._admit(GroupRequest(name, made.retry_max_times, is_new=True, origin="client"))
            log.info("group %s created on first use", name)
        group = self.next_table.get(name, made)
        try:
            await self._put(group)
        except StoreError as error:
            if group != made:
                raise
            log.warning("group %s is not saved until the next change of a group: %s", name, error)
            if name not in self.table:
                self._entries.load({name: made})
                self._publish(made)
        return self.table.get(name)

    def is_readable(self, group: str, topic: str) -> bool:
        """Return whether the group may read the topic."""
        return _is_readable(self.forbidden.get(group, {}), topic)

    async def set_readable(self, group: str, topic: str, is_readable: bool) -> None:
        """Allow or forbid a group to read a topic. Raises `StoreError`, and `Refused` if the group has too many
        forbidden topics."""
        self._expect_own()
        topics = dict(self._forbidden.wanted.get(group, {}))
        if topic not in topics and len(topics) >= FORBIDDEN_TOPICS_MAX:
            remark = f"group {group} has {FORBIDDEN_TOPICS_MAX} forbidden topics, which is the most"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        bits = topics.pop(topic, 0)
        if bits := bits & ~_FORBIDDEN_READ if is_readable else bits | _FORBIDDEN_READ:
            topics[topic] = bits
        if topics:
            self._forbidden.put(group, topics)
        else:
            self._forbidden.remove(group)
        await self._file.save()
        await self.reached()

    async def copy_all(self, content: GroupTable) -> None:
        """Replace the table, and the forbidden topics, by those of another broker. Raises `StoreError`."""
        for name in [name for name in self._forbidden.wanted if name not in content.forbidden_table]:
            self._forbidden.remove(name)
        for name, topics in content.forbidden_table.items():
            if self._forbidden.wanted.get(name) != topics:
                self._forbidden.put(name, topics)
        await self.copy(content.subscription_group_table, content.data_version)

    def _snapshot(self) -> Callable[[DataVersion], GroupTable]:
        groups = self._entries.snapshot()
        forbidden = {group: dict(topics) for group, topics in self._forbidden.snapshot().items()}
        return lambda version: GroupTable(
            data_version=version, subscription_group_table=groups, forbidden_table=forbidden
        )

    async def remove(self, *names: str) -> list[SubscriptionGroup]:
        for name in names:
            if name in self.next_table:
                self._forbidden.remove(name)
        return await super().remove(*names)

    def _ended(self, is_saved: bool) -> None:
        super()._ended(is_saved)
        if not is_saved:
            self._forbidden.take_back()
            return
        before = dict(self._forbidden.saved)
        for name in self._forbidden.commit():
            self._publish_forbidden(before.get(name, {}), name)

    def _publish_forbidden(self, before: Mapping[str, int], group: str) -> None:
        """Publish the group's forbidden topics to the data plane, and those that are allowed again."""
        topics = self.forbidden.get(group, {})
        for topic in {*before, *topics}:
            self._metadata.forbid(group, topic, not _is_readable(topics, topic))

    @staticmethod
    def _name(entry: SubscriptionGroup) -> str:
        return entry.group_name

    def _publish(self, entry: SubscriptionGroup) -> None:
        self._metadata.put_group(entry)

    def _retract(self, name: str) -> None:
        self._metadata.remove_group(name)


def _is_readable(topics: Mapping[str, int], topic: str) -> bool:
    return not topics.get(topic, 0) & _FORBIDDEN_READ


def _check(content: GroupTable) -> None:
    for name, group in content.subscription_group_table.items():
        if reason := fault(group):
            raise DecodeError(f"group {name}: {reason}")
