"""Address of the master, as name servers return it at registration. Threads: the event loop's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rmqpy.protocol.requests.registration import Registered

log = logging.getLogger(__name__)


class KnownMaster:
    """The master's addresses for requests and for slaves. The last known ones are kept, because a master may return."""

    def __init__(self) -> None:
        self.address: str | None = None
        self.replica_address: str | None = None
        #: Whether the name server that answered last knows a master; `None` before an answer.
        self.is_registered: bool | None = None
        #: The epoch of a master that a controller has assigned; name servers then change nothing.
        self.assigned_epoch: int | None = None
        #: Called with a new address for slaves.
        self.on_replica_address: Callable[[str | None], None] = lambda address: None
        self._known = asyncio.Event()
        #: Set when the master's address changes, and replaced.
        self.moved = asyncio.Event()

    def learn(self, answer: Registered) -> None:
        """Take the addresses from a name server's reply; a reply without a master changes nothing."""
        self.is_registered = bool(answer.master_addr)
        if self.assigned_epoch is not None:
            return
        if answer.master_addr and answer.master_addr != self.address:
            log.info("the master is %s", answer.master_addr)
            self._move(answer.master_addr)
        if answer.ha_server_addr and answer.ha_server_addr != self.replica_address:
            self.replica_address = answer.ha_server_addr
            self.on_replica_address(answer.ha_server_addr)

    def assign(self, address: str, epoch: int) -> None:
        """Take the master that a controller names. Its address for slaves is unknown until `assign_replicas`."""
        if address != self.address:
            log.info("the master is %s", address)
            # The former master may still serve slaves.
            self.replica_address = None
            self.on_replica_address(None)
            self._move(address)
        self.assigned_epoch = epoch
        # A broker that stopped leading has the address before.
        self._known.set()

    def assign_replicas(self, address: str) -> None:
        """Take the address for slaves that an assigned master has returned."""
        self.replica_address = address
        self.on_replica_address(address)

    def _move(self, address: str) -> None:
        self.address = address
        self._known.set()
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()

    async def wait(self) -> str:
        """Wait for the address for requests, and return it."""
        await self._known.wait()
        assert self.address is not None, "wait() ends with an address"
        return self.address
