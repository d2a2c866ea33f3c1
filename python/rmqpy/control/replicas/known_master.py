"""Address of the master, as name servers say when the slave registers. Threads: the event loop's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rmqpy.protocol.requests.registration import Registered

log = logging.getLogger(__name__)


class KnownMaster:
    """The address for requests, and the one for slaves. What was known last stays known: a master comes back."""

    def __init__(self) -> None:
        self.address: str | None = None
        self.replica_address: str | None = None
        #: Whether the name server that answered last knows a master; None before one has answered.
        self.is_registered: bool | None = None
        #: Called with the new address for slaves.
        self.on_replica_address: Callable[[str], None] = lambda address: None
        self._known = asyncio.Event()

    def told(self, answer: Registered) -> None:
        """What a name server answers; one that knows no master says nothing."""
        self.is_registered = bool(answer.master_addr)
        if answer.master_addr and answer.master_addr != self.address:
            log.info("the master is %s", answer.master_addr)
            self.address = answer.master_addr
            self._known.set()
        if answer.ha_server_addr and answer.ha_server_addr != self.replica_address:
            self.replica_address = answer.ha_server_addr
            self.on_replica_address(answer.ha_server_addr)

    async def wait(self) -> str:
        """The address for requests, once it is known."""
        await self._known.wait()
        assert self.address is not None, "it is known"
        return self.address
