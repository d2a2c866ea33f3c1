"""Search for the master of a slave: the broker to compare the log with, over its ordinary port.

Name servers say where it is. While none has said so, or what one said is not true any more, a slave with
`haMasterAddress` asks the port below that: a broker that says itself that it is the master, and that slaves connect
there, is the one. Invariant: no broker is taken for the master because nothing else is known.
Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from rmqpy.config import addresses
from rmqpy.config.addresses import HostPort
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.errors import ConnectError, RequestTimeout, RocketMQError
from rmqpy.protocol.requests.leadership import GetBrokerEpochCache
from rmqpy.protocol.requests.registration import Registered
from rmqpy.protocol.requests.replicas import ExchangeBrokerHaInfo
from rmqpy.protocol.requests.routes import MASTER_ID
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 3.0
#: For a name server to say where the master is.
KNOWN_SECONDS: Final = 2.0


class MasterUnknown(Exception):
    """The sentence why the master cannot be asked now."""


class MasterSearch:
    """The search of one slave."""

    def __init__(
        self, name: str, replica_address: str, master: KnownMaster, peer: Callable[[str], Peer]
    ) -> None:
        """`name` of the brokers; `replica_address` is `haMasterAddress`, empty where there is none."""
        self._name = name
        self._replica_address = addresses.parse(replica_address) if replica_address else None
        self._master = master
        self._peer = peer

    async def find(self) -> Peer:
        """The master. Raises `MasterUnknown`."""
        known = self._master.address
        if self._replica_address is None:
            return self._peer(known or await self._told())
        if known is not None and await self._answers(known):
            return self._peer(known)
        near = str(HostPort(self._replica_address.host, self._replica_address.port - 1))
        reason = await self._fault(near, self._replica_address.port)
        if reason is None:
            self._master.told(Registered(master_addr=near))
            return self._peer(near)
        if known is not None:
            raise MasterUnknown(
                f"the master {known} does not answer, so that this log is not compared with its log"
            )
        try:
            return self._peer(await self._told())
        except MasterUnknown as unknown:
            raise MasterUnknown(f"{unknown}; {reason}") from None

    async def _told(self) -> str:
        try:
            return await asyncio.wait_for(self._master.wait(), KNOWN_SECONDS)
        except TimeoutError:
            raise MasterUnknown(
                "no name server has said where the master is, so that this log is not compared with its log"
            ) from None

    async def _answers(self, address: str) -> bool:
        try:
            await self._peer(address).call(GetBrokerEpochCache(), timeout=ANSWER_SECONDS)
        except (ConnectError, RequestTimeout):
            return False
        except RocketMQError:
            # It is there, and says so.
            return True
        return True

    async def _fault(self, address: str, replica_port: int) -> str | None:
        """Why the broker there is not the master; None where it is."""
        if replica_port == 1:
            return "there is no port below that of haMasterAddress"
        peer = self._peer(address)
        try:
            where = (await peer.call(ExchangeBrokerHaInfo(), timeout=ANSWER_SECONDS)).master_ha_address
        except RocketMQError as error:
            return f"{address}, the port below haMasterAddress, does not say that it is the master: {error}"
        if where is None:
            return f"{address}, the port below haMasterAddress, is not a master"
        if not where.endswith(f":{replica_port}"):
            return f"{address}, the port below haMasterAddress, is another broker, whose slaves connect to {where}"
        try:
            told = (await peer.call(GetBrokerEpochCache(), timeout=ANSWER_SECONDS)).body
        except RocketMQError:
            # Apache's says no more than that it is a master, and where its slaves connect.
            return None
        if told.min_offset is not None and (told.broker_name, told.broker_id) != (self._name, MASTER_ID):
            return (
                f"{address} is broker {told.broker_id} of {told.broker_name}, not the master of {self._name}"
            )
        return None
