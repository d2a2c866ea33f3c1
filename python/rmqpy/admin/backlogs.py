"""Backlogs of all groups at once: what waits for each, in as few requests as there are brokers."""

from collections.abc import Mapping
from typing import NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.protocol import names
from rmqpy.protocol.requests.groups import GetAllSubscriptionGroupConfig
from rmqpy.protocol.requests.progress import (
    BrokerConsumeStats,
    GetBrokerConsumeStats,
    GroupTotal,
)


class GroupBacklog(NamedTuple):
    """Messages that one group has before it at one broker."""

    group: str
    topic: str
    queue_id: int
    committed: int
    end: int


class GroupSummary(NamedTuple):
    """One group, all its queues together."""

    group: str
    #: Messages that wait in all its topics, retries included.
    lag: int
    #: Its topics, but for that of its retries.
    topics: int
    retry_max: int
    #: Whether its members may consume.
    is_enabled: bool
    brokers: list[str]


class Backlogs(Part):
    """The backlogs of one cluster."""

    async def of_broker(self, broker: str) -> list[GroupBacklog]:
        """Progress of every group in every queue of one broker."""
        address = await self._cluster.master_of(broker)
        # Of ordered topics and of the others.
        return _rows(await self._cluster.ask(address, GetBrokerConsumeStats(is_order=False)))

    async def groups(self, *, with_system: bool = False) -> list[GroupSummary]:
        """Every group with its lag, by name; those of RocketMQ itself only if asked for."""
        found: dict[str, dict[str, GroupTotal]] = {}
        asked = GetBrokerConsumeStats(wants_group_totals=True)
        for broker, address, stats in await self._cluster.ask_masters(asked):
            for name, told in (await self._totals(address, stats)).items():
                if with_system or not names.is_system_group(name):
                    found.setdefault(name, {})[broker] = told
        return [_together(name, found[name]) for name in sorted(found)]

    async def _totals(self, address: str, told: BrokerConsumeStats) -> Mapping[str, GroupTotal]:
        """Of every group at one broker: brokers of ours add up, the answers of others have all queues."""
        if told.group_totals is not None:
            return told.group_totals
        lags: dict[str, int] = {}
        topics: dict[str, list[str]] = {}
        for row in _rows(told):
            lags[row.group] = lags.get(row.group, 0) + max(0, row.end - row.committed)
            if not names.is_derived(row.topic):
                topics.setdefault(row.group, []).append(row.topic)
        table = (await self._cluster.ask(address, GetAllSubscriptionGroupConfig())).body
        return {
            name: GroupTotal(
                lag=lags.get(name, 0),
                topics=topics.get(name, []),
                retry_max=group.retry_max_times,
                consume_enable=group.consume_enable,
            )
            for name, group in table.subscription_group_table.items()
        }


def _rows(told: BrokerConsumeStats) -> list[GroupBacklog]:
    return sorted(
        GroupBacklog(group, queue.topic, queue.queue_id, held.consumer_offset, held.broker_offset)
        for table in told.consume_stats_list
        for group, each in table.items()
        for stats in each
        for queue, held in stats.offset_table.items()
    )


def _together(name: str, told: Mapping[str, GroupTotal]) -> GroupSummary:
    """One group, as its brokers tell it."""
    totals = told.values()
    return GroupSummary(
        name,
        sum(each.lag for each in totals),
        len({topic for each in totals for topic in each.topics}),
        next(iter(totals)).retry_max,
        all(each.consume_enable for each in totals),
        list(told),
    )
