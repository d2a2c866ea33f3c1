"""Backlogs of all groups, with one request per broker."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.protocol import names
from rmqpy.protocol.requests.groups import GetAllSubscriptionGroupConfig
from rmqpy.protocol.requests.progress import (
    BrokerConsumeStats,
    GetBrokerConsumeStats,
    GroupTotal,
)

#: Names in one request: they travel in its header.
_TOGETHER: Final = 100


class GroupBacklog(NamedTuple):
    """Pending messages of a group on one broker."""

    group: str
    topic: str
    queue_id: int
    committed: int
    end: int


class GroupSummary(NamedTuple):
    """One group over all its queues."""

    group: str
    #: Pending messages of all its topics, retries included.
    lag: int
    #: Its topics, without the retry topic.
    topics: int
    retry_max: int
    #: Whether its members may consume.
    is_enabled: bool
    brokers: list[str]


class Backlogs(Part):
    """The backlogs of one cluster."""

    async def of_broker(self, broker: str) -> list[GroupBacklog]:
        """Return progress of every group in every queue of one broker."""
        address = await self._cluster.master_of(broker)
        # For ordered topics and for the others.
        return _rows(await self._cluster.ask(address, GetBrokerConsumeStats(is_order=False)))

    async def groups(self, *, with_system: bool = False) -> list[GroupSummary]:
        """List every group with its lag, by name; RocketMQ's own only on request."""
        found: dict[str, dict[str, GroupTotal]] = {}
        asked = GetBrokerConsumeStats(wants_group_totals=True)
        for broker, address, stats in await self._cluster.ask_masters(asked):
            for name, total in (await self._totals(address, stats)).items():
                if with_system or not names.is_system_group(name):
                    found.setdefault(name, {})[broker] = total
        return [_together(name, found[name]) for name in sorted(found)]

    async def ages(self, groups: Sequence[str]) -> dict[str, int] | None:
        """Return the age of the oldest pending message of each of these groups in ms; 0 without one. None if a broker
        does not report it: Apache's."""
        found = dict.fromkeys(groups, 0)
        for begin in range(0, len(groups), _TOGETHER):
            some = "\n".join(map(self._cluster.caller.wire_name, groups[begin : begin + _TOGETHER]))
            for _, _, stats in await self._cluster.ask_masters(GetBrokerConsumeStats(ages_of=some)):
                if stats.group_ages is None:
                    return None
                for name, age in stats.group_ages.items():
                    found[name] = max(found[name], age)
        return found

    async def _totals(self, address: str, stats: BrokerConsumeStats) -> Mapping[str, GroupTotal]:
        """Every group on one broker: rmqpy's brokers return totals, others all queues."""
        if stats.group_totals is not None:
            return stats.group_totals
        lags: dict[str, int] = {}
        topics: dict[str, list[str]] = {}
        for row in _rows(stats):
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


def _rows(stats: BrokerConsumeStats) -> list[GroupBacklog]:
    return sorted(
        GroupBacklog(group, queue.topic, queue.queue_id, held.consumer_offset, held.broker_offset)
        for table in stats.consume_stats_list
        for group, each in table.items()
        for stats in each
        for queue, held in stats.offset_table.items()
    )


def _together(name: str, by_broker: Mapping[str, GroupTotal]) -> GroupSummary:
    """One group, as reported by its brokers."""
    totals = by_broker.values()
    return GroupSummary(
        name,
        sum(each.lag for each in totals),
        len({topic for each in totals for topic in each.topics}),
        next(iter(totals)).retry_max,
        all(each.consume_enable for each in totals),
        list(by_broker),
    )
