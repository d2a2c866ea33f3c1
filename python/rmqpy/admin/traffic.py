"""Traffic of a topic: messages in, messages out to each group, and the lag of each group."""

from collections.abc import Iterable
from typing import NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.admin.topics import Topics
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.brokers import StatsWindow, ViewBrokerStatsData
from rmqpy.protocol.requests.offsets import (
    GetConsumeStats,
    QueryTopicConsumeByWho,
    QueryTopicsByConsumer,
)


class Flow(NamedTuple):
    """Messages sent to a topic, or consumed by one group."""

    #: The group; None for messages in.
    group: str | None
    #: The rate over the last minute.
    per_second: float
    last_hour: int
    last_day: int
    #: Pending messages of the group; None for messages in.
    lag: int | None


class Traffic(Part):
    """The traffic of one cluster."""

    async def of(self, topic: str) -> list[Flow]:
        """Return messages sent to a topic, then messages consumed by each of its groups. Raises `TopicNotFound`."""
        servers = list(self._cluster.masters_in(await Topics(self._cluster).route(topic)).items())
        replies = await self._cluster.ask_each(servers, QueryTopicConsumeByWho(topic=topic))
        # If brokers may be missing, a silent one is not asked again.
        addresses = [address for _, address, _ in replies]
        wire_name = self._cluster.caller.wire_name
        flows = [await self._flow(addresses, "TOPIC_PUT_NUMS", wire_name(topic))]
        for group in sorted({group for _, _, names in replies for group in names.group_list}):
            taken = await self._flow(addresses, "GROUP_GET_NUMS", f"{wire_name(topic)}@{wire_name(group)}")
            flows.append(taken._replace(group=group, lag=await self._lag(addresses, topic, group)))
        return flows

    async def groups(self, topic: str) -> list[str]:
        """List groups with a subscription to a topic or offsets in it. Raises `TopicNotFound`."""
        return await self._groups(
            self._cluster.masters_in(await Topics(self._cluster).route(topic)).values(), topic
        )

    async def topics(self, group: str) -> list[str]:
        """List topics in which a group has offsets."""
        found: set[str] = set()
        for address in (await self._cluster.masters()).values():
            found.update((await self._cluster.ask(address, QueryTopicsByConsumer(group=group))).topic_list)
        return sorted(found)

    async def _groups(self, addresses: Iterable[str], topic: str) -> list[str]:
        found: set[str] = set()
        for address in addresses:
            found.update((await self._cluster.ask(address, QueryTopicConsumeByWho(topic=topic))).group_list)
        return sorted(found)

    async def _flow(self, addresses: list[str], name: str, key: str) -> Flow:
        per_second, last_hour, last_day = 0.0, 0, 0
        for address in addresses:
            ask = ViewBrokerStatsData(stats_name=name, stats_key=key)
            # With this code a broker reports that there was nothing to count.
            stats = await self._cluster.ask_unless(ResponseCode.SYSTEM_ERROR, address, ask)
            if stats is not None:
                per_second += stats.stats_minute.tps
                last_hour += _sum(stats.stats_hour, stats.stats_minute)
                last_day += _sum(stats.stats_day, stats.stats_hour, stats.stats_minute)
        return Flow(None, per_second, last_hour, last_day, None)

    async def _lag(self, addresses: list[str], topic: str, group: str) -> int:
        lag = 0
        for address in addresses:
            ask = GetConsumeStats(consumer_group=group, topic=topic)
            # With this code the group has offsets of the topic but no consumer online.
            stats = await self._cluster.ask_unless(ResponseCode.SYSTEM_ERROR, address, ask)
            held = stats.offset_table.values() if stats is not None else ()
            lag += sum(max(0, each.broker_offset - each.consumer_offset) for each in held)
        return lag


def _sum(window: StatsWindow, *shorter: StatsWindow) -> int:
    """The count of a window. Apache's are updated every ten minutes or hour, so a shorter window may have more."""
    return max(window.sum, *(each.sum for each in shorter))
