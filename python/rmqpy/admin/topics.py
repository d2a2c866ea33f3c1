"""Topics of a cluster: which there are, where their queues lie, making and removing them.

Coroutines over a `Caller`: `rmqpy.remoting.client.run` drives them in a thread, an event loop awaits them. A topic
lives on each master of its cluster. What fails half-way leaves the earlier servers changed; asking again is harmless.
"""

import time
from contextlib import suppress
from typing import NamedTuple

from rmqpy.admin.brokers import MASTER_ID, masters
from rmqpy.errors import ConnectError, RequestTimeout, RocketMQError, TopicNotFound
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.offsets import GetTopicStatsInfo
from rmqpy.protocol.requests.routes import (
    BrokerData,
    DeleteTopic,
    GetAllTopics,
    GetRoute,
    GetSystemTopics,
    TopicRoute,
)
from rmqpy.protocol.requests.topics import (
    DeleteTopicInBroker,
    GetSystemTopicListFromBroker,
    UpdateAndCreateTopic,
)
from rmqpy.remoting.client import Caller
from rmqpy.remoting.nameservers import NameServers

READ, WRITE = 4, 2

_LOOK_AGAIN_S = 0.02


class QueueState(NamedTuple):
    """One queue of a topic: what it holds and what is allowed."""

    broker: str
    address: str
    queue_id: int
    permission: str
    begin: int
    end: int
    stored_at_ms: int


class Topics:
    """The topics of one cluster, seen through its name servers."""

    def __init__(self, caller: Caller, name_servers: NameServers, *, timeout: float = 3.0) -> None:
        self._caller = caller
        self._name_servers = name_servers
        self._timeout = timeout

    async def names(self, *, with_system: bool = False) -> list[str]:
        """Names of all topics, sorted; those RocketMQ keeps for itself only if asked for."""
        found = (await self._name_servers.ask(self._caller, GetAllTopics())).body.topic_list
        if with_system:
            return sorted(found)
        system = await self._system_names()
        return sorted(name for name in found if name not in system and not names.is_derived(name))

    async def describe(self, name: str) -> list[QueueState]:
        """Every readable queue with the offsets its broker holds. Raises `TopicNotFound`."""
        route = await self._route(name)
        masters = {one.broker_name: _master(one) for one in route.broker_datas}
        states = []
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name):
            address = masters.get(data.broker_name)
            if address is None:
                continue
            stats = await self._caller.ask(address, GetTopicStatsInfo(topic=name), timeout=self._timeout)
            for queue, held in sorted(stats.body.offset_table.items(), key=lambda item: item[0].queue_id):
                if queue.queue_id < data.read_queue_nums:
                    states.append(
                        QueueState(
                            data.broker_name,
                            address,
                            queue.queue_id,
                            _permission(data.perm),
                            held.min_offset,
                            held.max_offset,
                            held.last_update_timestamp,
                        )
                    )
        return states

    async def create(
        self,
        name: str,
        *,
        read_queues: int = 8,
        write_queues: int = 8,
        permission: int = READ | WRITE,
        cluster: str | None = None,
    ) -> list[str]:
        """Make the topic on every master, or change it where it exists; the names of these brokers.

        Returns when the name servers show it there, or after the timeout: brokers tell them on their own.
        """
        brokers = await masters(self._caller, self._name_servers, cluster)
        ask = UpdateAndCreateTopic(
            topic=name, read_queue_nums=read_queues, write_queue_nums=write_queues, perm=permission
        )
        for address in brokers.values():
            await self._caller.ask(address, ask, timeout=self._timeout)
        deadline = time.monotonic() + self._timeout
        for name_server in self._name_servers.addresses:
            while not await self._is_routed(name_server, name, set(brokers)) and time.monotonic() < deadline:
                await self._caller.sleep(_LOOK_AGAIN_S)
        return sorted(brokers)

    async def delete(self, name: str) -> list[str]:
        """Remove the topic from its brokers, then from every name server; the names of these brokers.

        Raises `TopicNotFound` when there is none. Its messages cannot be read any more.
        """
        route = await self._route(name)
        for broker in route.broker_datas:
            for address in broker.broker_addrs.values():
                await self._caller.ask(address, DeleteTopicInBroker(topic=name), timeout=self._timeout)
        for address in self._name_servers.addresses:
            # Each keeps its own table; one that already forgot the topic has nothing left to do.
            with suppress(TopicNotFound):
                await self._caller.ask(address, DeleteTopic(topic=name), timeout=self._timeout)
        return sorted(broker.broker_name for broker in route.broker_datas)

    async def _route(self, name: str) -> TopicRoute:
        ask = GetRoute(topic=name, accept_standard_json_only=True)
        try:
            return (await self._name_servers.ask(self._caller, ask)).body
        except RocketMQError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise TopicNotFound(
                    f"there is no topic {name!r}",
                    code=error.code,
                    topic=name,
                    hint=f"rmqpy topic create {name}",
                ) from None
            raise

    async def _is_routed(self, name_server: str, name: str, brokers: set[str]) -> bool:
        """Whether a name server shows the topic at all of these brokers; one that is away need not."""
        ask = GetRoute(topic=name, accept_standard_json_only=True)
        try:
            route = (await self._caller.ask(name_server, ask, timeout=self._timeout)).body
        except TopicNotFound:
            return False
        except (ConnectError, RequestTimeout):
            return True
        return brokers <= {data.broker_name for data in route.queue_datas}

    async def _system_names(self) -> set[str]:
        """Topics the servers keep for themselves: name servers know those named as clusters and brokers, a broker
        knows the others."""
        known = (await self._name_servers.ask(self._caller, GetSystemTopics())).body
        names = set(known.topic_list)
        if known.broker_addr:
            answer = await self._caller.ask(
                known.broker_addr, GetSystemTopicListFromBroker(), timeout=self._timeout
            )
            names.update(answer.body.topic_list)
        return names


def _master(broker: BrokerData) -> str | None:
    return broker.broker_addrs.get(MASTER_ID)


def _permission(bits: int) -> str:
    return ("R" if bits & READ else "-") + ("W" if bits & WRITE else "-")
