"""Topics of a cluster: their names, queues, routes and settings; creating, changing and deleting them.

A topic lives on each master of its cluster.
"""

import dataclasses
import time
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

from rmqpy.admin.connection import Part, masters
from rmqpy.errors import ConfigError, ConnectError, RequestTimeout, RocketMQError, TopicNotFound
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.offsets import GetTopicStatsInfo
from rmqpy.protocol.requests.routes import (
    DeleteTopic,
    GetAllTopics,
    GetRoute,
    GetSystemTopics,
    TopicRoute,
)
from rmqpy.protocol.requests.topics import (
    DeleteTopicInBroker,
    GetSystemTopicListFromBroker,
    GetTopicConfig,
    UpdateAndCreateTopic,
)
from rmqpy.protocol.topics import Permission, TopicConfig

#: What clients may do with a topic: read, write, both.
Perm = Literal["RW", "R", "W"]
#: What a topic is for; brokers hold senders to it.
TopicType = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION"]

_LOOK_AGAIN_S: Final = 0.02
_TYPE: Final = "message.type"


class QueueState(NamedTuple):
    """One queue of a topic: what it holds and what is allowed."""

    broker: str
    address: str
    queue_id: int
    permission: str
    begin: int
    end: int
    #: When the last message came, in ms since the epoch; 0 when there is none.
    stored_at_ms: int


class Topics(Part):
    """The topics of one cluster, seen through its name servers."""

    async def names(self, *, with_system: bool = False) -> list[str]:
        """Names of all topics, sorted; system topics only if asked for."""
        found = (await self._cluster.look_up(GetAllTopics())).topic_list
        if with_system:
            return sorted(found)
        system = await self._system_names()
        return sorted(name for name in found if name not in system and not names.is_derived(name))

    async def describe(self, name: str) -> list[QueueState]:
        """Every readable queue with the offsets its broker holds. Raises `TopicNotFound`."""
        route = await self.route(name)
        addresses = masters(route)
        states = []
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name):
            if (address := addresses.get(data.broker_name)) is None:
                continue
            stats = await self._cluster.ask(address, GetTopicStatsInfo(topic=name))
            for queue, held in sorted(stats.offset_table.items(), key=lambda item: item[0].queue_id):
                if queue.queue_id < data.read_queue_nums:
                    states.append(
                        QueueState(
                            data.broker_name,
                            address,
                            queue.queue_id,
                            permission(data.perm),
                            held.min_offset,
                            held.max_offset,
                            held.last_update_timestamp,
                        )
                    )
        return states

    async def settings(self, name: str) -> dict[str, TopicConfig]:
        """The settings of a topic on each broker. Raises `TopicNotFound`."""
        found = {}
        for broker, address in (await self._masters_of(name)).items():
            # A broker that has just lost the topic is still in the route.
            with suppress(TopicNotFound):
                found[broker] = await self._cluster.ask(address, GetTopicConfig(topic=name))
        if not found:
            raise _missing(name, None)
        return found

    async def route(self, name: str) -> TopicRoute:
        """The route of a topic, as name servers give it to clients. Raises `TopicNotFound`."""
        try:
            return (await self._cluster.look_up(_route(name))).body
        except RocketMQError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise _missing(name, error.code) from None
            raise

    async def create(
        self,
        name: str,
        *,
        read_queues: int = 8,
        write_queues: int = 8,
        perm: Perm = "RW",
        message_type: TopicType = "NORMAL",
        order: bool = False,
        cluster: str | None = None,
    ) -> list[str]:
        """Make the topic on every master, or change it where it exists; the names of these brokers.

        Returns when the name servers show it there, or after the timeout: brokers register it on their own.
        """
        brokers = await self._cluster.masters(cluster)
        ask = UpdateAndCreateTopic(
            topic=name,
            read_queue_nums=read_queues,
            write_queue_nums=write_queues,
            perm=_bits(perm),
            order=order,
            attributes=None if message_type == "NORMAL" else f"+{_TYPE}={message_type}",
        )
        for address in brokers.values():
            await self._cluster.ask(address, ask)
        deadline = time.monotonic() + self._cluster.timeout
        for name_server in self._cluster.name_servers.addresses:
            while not await self._is_routed(name_server, name, set(brokers)) and time.monotonic() < deadline:
                await self._cluster.caller.sleep(_LOOK_AGAIN_S)
        return sorted(brokers)

    async def alter(
        self,
        name: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: Perm | None = None,
        order: bool | None = None,
    ) -> list[str]:
        """Change some settings of a topic where it exists; the names of these brokers. Raises `TopicNotFound`.

        Fewer queues hide what the others hold: lower `write_queues` first, `read_queues` when they are consumed.
        """
        given: dict[str, Any] = {
            "read_queue_nums": read_queues,
            "write_queue_nums": write_queues,
            "perm": None if perm is None else _bits(perm),
            "order": order,
        }
        changes = {field: value for field, value in given.items() if value is not None}
        if not changes:
            raise ConfigError("nothing to change: name a setting")
        known, addresses = await self.settings(name), await self._masters_of(name)
        for broker, topic in known.items():
            new = dataclasses.replace(topic, **changes)
            ask = UpdateAndCreateTopic(
                topic=name,
                read_queue_nums=new.read_queue_nums,
                write_queue_nums=new.write_queue_nums,
                perm=new.perm,
                topic_filter_type=new.topic_filter_type,
                topic_sys_flag=new.topic_sys_flag,
                order=new.order,
            )
            await self._cluster.ask(addresses[broker], ask)
        return sorted(known)

    async def delete(self, name: str) -> list[str]:
        """Remove the topic from its brokers, then from every name server; the names of these brokers.

        Raises `TopicNotFound` when there is none. Its messages cannot be read any more.
        """
        route = await self.route(name)
        for broker in route.broker_datas:
            for address in broker.broker_addrs.values():
                await self._cluster.ask(address, DeleteTopicInBroker(topic=name))
        for address in self._cluster.name_servers.addresses:
            # Each keeps its own table; one that already forgot the topic has nothing left to do.
            with suppress(TopicNotFound):
                await self._cluster.ask(address, DeleteTopic(topic=name))
        return sorted(broker.broker_name for broker in route.broker_datas)

    async def _masters_of(self, name: str) -> dict[str, str]:
        return dict(sorted(masters(await self.route(name)).items()))

    async def _is_routed(self, name_server: str, name: str, brokers: set[str]) -> bool:
        """Whether a name server shows the topic at all of these brokers; one that is away need not."""
        try:
            route = (await self._cluster.ask(name_server, _route(name))).body
        except TopicNotFound:
            return False
        except (ConnectError, RequestTimeout):
            return True
        return brokers <= {data.broker_name for data in route.queue_datas}

    async def _system_names(self) -> set[str]:
        """Topics the servers keep for themselves: name servers know those named as clusters and brokers, a broker
        knows the others."""
        known = await self._cluster.look_up(GetSystemTopics())
        found = set(known.topic_list)
        if known.broker_addr:
            answer = await self._cluster.ask(known.broker_addr, GetSystemTopicListFromBroker())
            found.update(answer.topic_list)
        return found


def permission(bits: int) -> str:
    """Permission bits as text.

    >>> permission(6), permission(4)
    ('RW', 'R-')
    """
    return ("R" if bits & Permission.READ else "-") + ("W" if bits & Permission.WRITE else "-")


def _bits(perm: Perm) -> int:
    return (Permission.READ if "R" in perm else 0) | (Permission.WRITE if "W" in perm else 0)


def _route(name: str) -> GetRoute:
    return GetRoute(topic=name, accept_standard_json_only=True)


def _missing(name: str, code: int | None) -> TopicNotFound:
    return TopicNotFound(
        f"there is no topic {name!r}", code=code, topic=name, hint=f"rmqpy topic create {name}"
    )
