"""Backlogs of all groups at once: what waits for each, in as few requests as there are brokers."""

from typing import NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.admin.groups import Groups
from rmqpy.protocol import names
from rmqpy.protocol.requests.progress import GetBrokerConsumeStats


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
        told = await self._cluster.ask(address, GetBrokerConsumeStats(is_order=False))
        return sorted(
            GroupBacklog(group, queue.topic, queue.queue_id, held.consumer_offset, held.broker_offset)
            for table in told.consume_stats_list
            for group, each in table.items()
            for stats in each
            for queue, held in stats.offset_table.items()
        )

    async def groups(self, *, with_system: bool = False) -> list[GroupSummary]:
        """Every group with its lag, by name; those of RocketMQ itself only if asked for."""
        tables = await Groups(self._cluster).tables()
        lags: dict[str, int] = {}
        topics: dict[str, set[str]] = {}
        for broker in tables:
            for row in await self.of_broker(broker):
                lags[row.group] = lags.get(row.group, 0) + max(0, row.end - row.committed)
                if not names.is_derived(row.topic):
                    topics.setdefault(row.group, set()).add(row.topic)
        found = []
        for name in sorted({name for table in tables.values() for name in table}):
            if with_system or not names.is_system_group(name):
                own = {broker: table[name] for broker, table in tables.items() if name in table}
                first = next(iter(own.values()))
                is_enabled = all(each.consume_enable for each in own.values())
                lag, count = lags.get(name, 0), len(topics.get(name, ()))
                found.append(GroupSummary(name, lag, count, first.retry_max_times, is_enabled, sorted(own)))
        return found
