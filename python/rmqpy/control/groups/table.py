"""Group table: `subscriptionGroup.json`, and the groups the data plane knows.

Owns the configuration of every consumer group and the topics that a group may not read. Threads: the event loop's; the
file is written in a worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rmqpy._native import Metadata
from rmqpy.clock import Clock
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.tables.file import TableFile
from rmqpy.control.tables.named import NamedTable
from rmqpy.errors import DecodeError, StoreError
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
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
    """The first thing wrong with a configuration of an administrator or a file; None when nothing is."""
    if not (0 <= group.retry_queue_nums <= RETRY_QUEUES_MAX):
        return f"A group has from 0 to {RETRY_QUEUES_MAX} retry queues, not {group.retry_queue_nums}."
    for number in (group.retry_max_times, group.group_sys_flag):
        if number not in _INT32:
            return f"The number {number} has more than 32 bits."
    if group.broker_id < 0 or group.which_broker_when_consume_slowly < 0:
        return "The id of a broker is not negative."
    return None


class Groups(NamedTable[SubscriptionGroup, GroupTable]):
    """All subscription groups of this broker."""

    member = "subscriptionGroupTable"

    def __init__(self, path: Path, metadata: Metadata, clock: Clock) -> None:
        file = TableFile(path, GroupTable, self._snapshot, clock)
        super().__init__(file, {name: SubscriptionGroup(group_name=name) for name in names.SYSTEM_GROUPS})
        self._metadata = metadata
        self._forbidden: dict[str, dict[str, int]] = {}

    def load(self) -> None:
        """Read the file and publish every group. Blocks; raises `ConfigError` naming the file."""
        found = self._file.load(_check)
        if found is not None:
            self._table |= found.subscription_group_table
            self._forbidden = {group: dict(topics) for group, topics in found.forbidden_table.items()}
        for group in self._table.values():
            self._publish(group)
        for name, topics in self._forbidden.items():
            for topic in topics:
                self._metadata.forbid(name, topic, not self.is_readable(name, topic))

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

        A group with the defaults is used though it cannot be written: a full disk can be read, and after a restart
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
        self._metadata.forbid(group, topic, not is_readable)
        await self._file.save()

    def _snapshot(self) -> Callable[[DataVersion], GroupTable]:
        groups = dict(self._table)
        forbidden = {group: dict(topics) for group, topics in self._forbidden.items()}
        return lambda version: GroupTable(
            data_version=version, subscription_group_table=groups, forbidden_table=forbidden
        )

    @staticmethod
    def _name(entry: SubscriptionGroup) -> str:
        return entry.group_name

    def _publish(self, entry: SubscriptionGroup) -> None:
        self._metadata.put_group(entry)

    def _retract(self, name: str) -> None:
        self._metadata.remove_group(name)
        for topic in self._forbidden.pop(name, {}):
            self._metadata.forbid(name, topic, False)


def _check(content: GroupTable) -> None:
    for name, group in content.subscription_group_table.items():
        if reason := fault(group):
            raise DecodeError(f"group {name}: {reason}")
