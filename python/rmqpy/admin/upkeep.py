"""Maintenance of servers: statistics, deletions, write permissions, and key-value pairs of name servers."""

from typing import NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import Request
from rmqpy.protocol.requests.brokers import (
    CleanExpiredConsumeQueue,
    DeleteExpiredCommitLog,
    GetBrokerRuntimeInfo,
    StatsWindow,
    ViewBrokerStatsData,
)
from rmqpy.protocol.requests.kv import DeleteKv, GetKvList, PutKv
from rmqpy.protocol.requests.routes import AddWritePermission, GetTopicsByCluster, WipeWritePermission
from rmqpy.protocol.requests.topics import CleanUnusedTopic


class Statistic(NamedTuple):
    """One statistic of a broker over its last minute, hour and day."""

    minute: StatsWindow
    hour: StatsWindow
    day: StatsWindow


class Upkeep(Part):
    """Maintenance of one cluster."""

    async def runtime(self, broker: str) -> dict[str, str]:
        """Return counters, rates and disk use of a broker's master, with RocketMQ's names."""
        return dict(
            (await self._cluster.ask(await self._cluster.master_of(broker), GetBrokerRuntimeInfo())).table
        )

    async def statistic(self, broker: str, name: str, key: str) -> Statistic | None:
        """`name`: `TOPIC_PUT_NUMS` with a topic as key, `GROUP_GET_SIZE` with `topic@group`, and others. Returns
        `None` if the broker has not counted it."""
        ask = ViewBrokerStatsData(stats_name=name, stats_key=key)
        reply = await self._cluster.ask_unless(
            ResponseCode.SYSTEM_ERROR, await self._cluster.master_of(broker), ask
        )
        return None if reply is None else Statistic(reply.stats_minute, reply.stats_hour, reply.stats_day)

    async def delete_expired_log(self, broker: str | None = None) -> list[str]:
        """Delete expired log files now, at any hour, on one broker or all. Returns their names."""
        return await self._each(broker, DeleteExpiredCommitLog())

    async def clean_queues(self, broker: str | None = None) -> list[str]:
        """Delete queue files without remaining messages, on one broker or all. Returns their names."""
        return await self._each(broker, CleanExpiredConsumeQueue())

    async def clean_topics(self, broker: str | None = None) -> list[str]:
        """Delete queues of topics that no longer exist, on one broker or all. Returns their names."""
        return await self._each(broker, CleanUnusedTopic())

    async def set_writable(self, broker: str, writable: bool) -> int:
        """Allow or forbid clients to send to a broker, on every name server. Returns the most topics that one of them
        changed."""
        counts = []
        for address in self._cluster.name_servers.addresses:
            if writable:
                added = await self._cluster.ask(address, AddWritePermission(broker_name=broker))
                counts.append(added.add_topic_count)
            else:
                wiped = await self._cluster.ask(address, WipeWritePermission(broker_name=broker))
                counts.append(wiped.wipe_topic_count)
        return max(counts)

    async def cluster_topics(self, cluster: str) -> list[str]:
        """List topics that have a queue in one cluster."""
        return sorted((await self._cluster.look_up(GetTopicsByCluster(cluster=cluster))).topic_list)

    async def values(self, namespace: str) -> dict[str, str]:
        """Return the key-value pairs of a namespace, such as `ORDER_TOPIC_CONFIG`, from any name server."""
        for address in self._cluster.name_servers.addresses:
            reply = await self._cluster.ask_unless(
                ResponseCode.QUERY_NOT_FOUND, address, GetKvList(namespace=namespace)
            )
            if reply is not None:
                return dict(reply.table)
        return {}

    async def set_value(self, namespace: str, key: str, value: str | None) -> None:
        """Set one value on every name server; `None` deletes it."""
        ask: Request[None] = DeleteKv(namespace=namespace, key=key)
        if value is not None:
            ask = PutKv(namespace=namespace, key=key, value=value)
        for address in self._cluster.name_servers.addresses:
            await self._cluster.ask(address, ask)

    async def _each(self, broker: str | None, ask: Request[None]) -> list[str]:
        brokers = (
            await self._cluster.masters()
            if broker is None
            else {broker: await self._cluster.master_of(broker)}
        )
        for address in brokers.values():
            await self._cluster.ask(address, ask)
        return sorted(brokers)
