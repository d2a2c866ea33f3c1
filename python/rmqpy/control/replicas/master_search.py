"""Master search: finds the broker to compare the log with, over its ordinary port.

Name servers know the address. While none has returned it, or it is stale, a slave with `haMasterAddress` asks the port
whose number is one lower. It accepts the broker there only if that broker reports to be a master with this replication
port. Invariant: a broker is never accepted as the master only because no other was found. Threads: the event loop's.
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
#: The time for a name server to return the master's address.
KNOWN_SECONDS: Final = 2.0


class MasterUnknown(Exception):
    """The reason why the master cannot be queried now, as a sentence."""


class MasterSearch:
    """The search of one slave."""

    def __init__(
        self, name: str, replica_address: str, master: KnownMaster, peer: Callable[[str], Peer]
    ) -> None:
        """`name` is that of the brokers; `replica_address` is `haMasterAddress`, or empty."""
        self._name = name
        self._replica_address = addresses.parse(replica_address) if replica_address else None
        self._master = master
        self._peer = peer

    async def find(self) -> Peer:
        """Return the master. Raises `MasterUnknown`."""
        known = self._master.address
        if self._replica_address is None:
            return self._peer(known or await self._first_known())
        if known is not None and await self._answers(known):
            return self._peer(known)
        near = str(HostPort(self._replica_address.host, self._replica_address.port - 1))
        reason = await self._fault(near, self._replica_address.port)
        if reason is None:
            self._master.learn(Registered(master_addr=near))
            return self._peer(near)
        if known is not None:
            raise MasterUnknown(f"the master {known} does not answer, so the logs cannot be compared")
        try:
            return self._peer(await self._first_known())
        except MasterUnknown as unknown:
            raise MasterUnknown(f"{unknown}; {reason}") from None

    async def _first_known(self) -> str:
        try:
            return await asyncio.wait_for(self._master.wait(), KNOWN_SECONDS)
        except TimeoutError:
            raise MasterUnknown(
                "no name server has returned the master's address, so the logs cannot be compared"
            ) from None

    async def _answers(self, address: str) -> bool:
        try:
            await self._peer(address).call(GetBrokerEpochCache(), timeout=ANSWER_SECONDS)
        except (ConnectError, RequestTimeout):
            return False
        except RocketMQError:
            # Even a refusal shows that the broker is there.
            return True
        return True

    async def _fault(self, address: str, replica_port: int) -> str | None:
        """Return why the broker at this address is not the master, or `None`."""
        if replica_port == 1:
            return "the port of haMasterAddress has no port below it"
        peer = self._peer(address)
        try:
            where = (await peer.call(ExchangeBrokerHaInfo(), timeout=ANSWER_SECONDS)).master_ha_address
        except RocketMQError as error:
            return f"{address}, the port below haMasterAddress, did not report its role: {error}"
        if where is None:
            return f"{address}, the port below haMasterAddress, is not a master"
        if not where.endswith(f":{replica_port}"):
            return f"{address}, the port below haMasterAddress, is another broker, whose slaves connect to {where}"
        try:
            state = (await peer.call(GetBrokerEpochCache(), timeout=ANSWER_SECONDS)).body
        except RocketMQError:
            # Apache's broker reports only that it is a master, and the address for its slaves.
            return None
        if state.min_offset is not None and (state.broker_name, state.broker_id) != (self._name, MASTER_ID):
            return f"{address} is broker {state.broker_id} of {state.broker_name}, not the master of {self._name}"
        return None
