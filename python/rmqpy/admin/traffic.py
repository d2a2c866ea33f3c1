"""Traffic of a topic: messages sent to it, messages each group consumed, and the lag of each group."""

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
    """Messages that came into a topic, or that one group took out of it."""

    #: The group; None for what came in.
    group: str | None
    #: Over the last minute.
    per_second: float
    last_hour: int
    last_day: int
    #: Messages that wait for the group; None for what came in.
    lag: int | None


class Traffic(Part):
    """The traffic of one cluster."""

    async def of(self, topic: str) -> list[Flow]:
        """Messages sent to a topic, then messages consumed by each of its groups, by group. Raises `TopicNotFound`."""
        servers = list(self._cluster.masters_in(await Topics(self._cluster).route(topic)).items())
        told = await self._cluster.ask_each(servers, QueryTopicConsumeByWho(topic=topic))
        # Where one may be missing, it is not asked again.
        addresses = [address for _, address, _ in told]
        wire_name = self._cluster.caller.wire_name
        flows = [await self._flow(addresses, "TOPIC_PUT_NUMS", wire_name(topic))]
        for group in sorted({group for _, _, names in told for group in names.group_list}):
            taken = await self._flow(addresses, "GROUP_GET_NUMS", f"{wire_name(topic)}@{wire_name(group)}")
            flows.append(taken._replace(group=group, lag=await self._lag(addresses, topic, group)))
        return flows

    async def groups(self, topic: str) -> list[str]:
        """Groups that subscribe to a topic or have offsets in it, sorted. Raises `TopicNotFound`."""
        return await self._groups(
            self._cluster.masters_in(await Topics(self._cluster).route(topic)).values(), topic
        )

    async def topics(self, group: str) -> list[str]:
        """Topics that a group has offsets in, sorted."""
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
            # With this code the group has offsets of the topic, and none of its consumers is online.
            stats = await self._cluster.ask_unless(ResponseCode.SYSTEM_ERROR, address, ask)
            held = stats.offset_table.values() if stats is not None else ()
            lag += sum(max(0, each.broker_offset - each.consumer_offset) for each in held)
        return lag


def _sum(window: StatsWindow, *shorter: StatsWindow) -> int:
    """Count of a window. Apache's are filled every ten minutes or hour, so that a shorter one may have more."""
    return max(window.sum, *(each.sum for each in shorter))
