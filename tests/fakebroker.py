"""Fake brokers, which exist only on the wire and register at a name server, and its replies about them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from rmqpy.namesrv import NameServer
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.registration import RegisterBroker, Registered, UnregisterBroker, pack
from rmqpy.protocol.requests.routes import GetBrokerMembers, GetRoute
from rmqpy.protocol.topics import DataVersion, TopicConfig, TopicTable
from wire import TIMEOUT_S, Frame, Peer, Refusal

Connect = Callable[..., Awaitable[Peer]]
StartNameServer = Callable[..., Awaitable[NameServer]]
BrokerMaker = Callable[..., Awaitable["FakeBroker"]]


@dataclass
class FakeBroker:
    """One broker on one connection."""

    peer: Peer
    name: str = "broker-a"
    cluster: str = "c1"
    broker_id: int = 0
    address: str = "10.0.0.1:10911"
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    version: DataVersion = field(default_factory=lambda: DataVersion(counter=1, timestamp=1))
    acting: bool | None = None
    timeout_ms: int | None = None
    zone: str | None = None

    def table(self) -> TopicTable:
        return TopicTable(data_version=self.version, topic_config_table=self.topics)

    def registration(self, **changes: Any) -> RegisterBroker:
        fields: dict[str, Any] = {
            "cluster_name": self.cluster,
            "broker_name": self.name,
            "broker_addr": self.address,
            "broker_id": self.broker_id,
            "ha_server_addr": self.address.replace("10911", "10912"),
            "heartbeat_timeout_millis": self.timeout_ms,
            "enable_acting_master": self.acting,
            "zone_name": self.zone,
            **pack(self.table())._asdict(),
        }
        return RegisterBroker(**fields | changes)

    async def register(self, **changes: Any) -> Registered:
        return await self.peer.ask(self.registration(**changes))

    async def try_register(self, **changes: Any) -> Frame:
        """The answer as it came, refusals too."""
        ask = self.registration(**changes)
        ext, body = encode(ask)
        return await self.peer.call(ask.code, ext, body or b"")

    async def unregister(self) -> None:
        await self.peer.ask(
            UnregisterBroker(
                cluster_name=self.cluster,
                broker_name=self.name,
                broker_addr=self.address,
                broker_id=self.broker_id,
            )
        )


def topics(*names: str, queues: int = 4, perm: int = 6, flags: int = 0) -> dict[str, TopicConfig]:
    """A table of topics that are all alike."""
    return {
        name: TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm, topic_sys_flag=flags
        )
        for name in names
    }


async def route_names(peer: Peer, topic: str) -> list[str] | None:
    """Names of the brokers a topic is at, `None` where the name server knows no route."""
    try:
        found = await peer.ask(GetRoute(topic=topic))
    except Refusal as refusal:
        return None if refusal.code == 17 else pytest.fail(str(refusal))
    return [queue.broker_name for queue in found.body.queue_datas]


async def members(peer: Peer, name: str = "broker-a", cluster: str = "c1") -> dict[int, str]:
    """The addresses of a group of brokers by id."""
    found = await peer.ask(GetBrokerMembers(cluster_name=cluster, broker_name=name))
    return found.broker_member_group.broker_addrs


async def until_gone(peer: Peer, topic: str) -> None:
    """Wait until a topic has no route any more."""
    async with asyncio.timeout(TIMEOUT_S):
        while await route_names(peer, topic) is not None:
            pass
