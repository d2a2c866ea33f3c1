"""A broker as a controller sees it: a connection with an id, and requests packed by hand or declared."""

from collections.abc import Awaitable, Callable
from typing import Any

from rmqpy.controller import ControllerServer
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.controller import ApplyBrokerId, ElectMaster
from rmqpy.protocol.requests.registration import BrokerHeartbeat, HeartbeatTaken
from wire import ONEWAY, Peer

StartController = Callable[..., Awaitable[ControllerServer]]

CLUSTER, NAME = "DefaultCluster", "broker-a"


class Replica:
    """A broker as a controller sees it: one connection, with an id."""

    def __init__(self, peer: Peer, broker_id: int) -> None:
        self.peer = peer
        self.broker_id = broker_id
        self.address = f"127.0.0.1:{10_000 + broker_id}"

    async def apply(self) -> None:
        """Take its id."""
        await self.peer.ask(
            ApplyBrokerId(
                cluster_name=CLUSTER,
                broker_name=NAME,
                applied_broker_id=self.broker_id,
                register_check_code=f"{self.address};1",
            )
        )

    def heartbeat(self, **fields: Any) -> BrokerHeartbeat:
        return BrokerHeartbeat(
            cluster_name=CLUSTER,
            broker_name=NAME,
            broker_addr=self.address,
            **{"broker_id": self.broker_id, "epoch": 1, "max_offset": 0, "confirm_offset": 0} | fields,
        )

    async def beat(self, **fields: Any) -> HeartbeatTaken:
        """Send a heartbeat with a reply, as brokers that take leases do."""
        return await self.peer.ask(self.heartbeat(**fields))

    async def beat_oneway(self, **fields: Any) -> None:
        """Send a heartbeat without a reply, as Apache's brokers do."""
        ask = self.heartbeat(**fields)
        await self.peer.send(ask.code, encode(ask).ext, flag=ONEWAY)

    async def elect(self, *, designated: bool = False) -> Any:
        return await self.peer.ask(
            ElectMaster(
                cluster_name=CLUSTER,
                broker_name=NAME,
                broker_id=self.broker_id,
                designate_elect=designated,
            )
        )
