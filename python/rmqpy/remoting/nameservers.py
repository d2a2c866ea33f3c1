"""Name servers of a client, which do not know each other, used as one.

Owns the choice among them: one is used until it fails, then the next. Each client starts at a random one, to spread
load. Any thread: the choice is a single number, and concurrent changes lose nothing.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

from rmqpy import errors
from rmqpy.protocol import declare
from rmqpy.remoting.address_server import AddressServer
from rmqpy.remoting.client import Caller

R = TypeVar("R")


class NameServers:
    """The configured name servers, or those from an address server."""

    def __init__(self, addresses: Sequence[str], *, timeout: float = 3.0, unit: str = "") -> None:
        """`addresses`: each `host:port`; or the URL of one address server. `unit`: for that one."""
        self.timeout = timeout
        self._fixed = tuple(addresses)
        self._address_server: AddressServer | None = None
        if "://" in addresses[0]:
            self._address_server = AddressServer(addresses[0], unit=unit, timeout=timeout)
        self._turn = random.randrange(1 << 16)

    @property
    def addresses(self) -> tuple[str, ...]:
        """All of them. The first call may block on an address server, and raise `NameServerUnreachable`."""
        return self._fixed if self._address_server is None else self._address_server.newest()

    async def ready(self, caller: Caller) -> None:
        """Wait until `addresses` does not block. Raises `NameServerUnreachable`."""
        if self._address_server is not None:
            await self._address_server.ready(caller)

    @property
    def current(self) -> str:
        every = self.addresses
        return every[self._turn % len(every)]

    def fail(self, address: str) -> None:
        """Switch to the next one, unless another thread has already switched from `address`."""
        if self.current == address:
            self._turn += 1

    async def ask(self, caller: Caller, ask: declare.Request[R]) -> R:
        """Return the reply of the first name server that gives one, even a refusal.

        Raises `NameServerUnreachable` with the error of each if none does.
        """
        await self.ready(caller)
        failures = []
        for _ in self.addresses:
            address = self.current
            try:
                return await caller.ask(address, ask, timeout=self.timeout)
            except (errors.ConnectError, errors.RequestTimeout) as failure:
                failures.append(str(failure))
                self.fail(address)
            except errors.Unsupported as refusal:
                # Name servers support everything asked here; others are most likely brokers.
                raise errors.Unsupported(
                    f"{address} is not a name server, probably a broker: {refusal.args[0]}",
                    code=refusal.code,
                    remark=refusal.remark,
                    broker=address,
                    hint="use the address of a name server; its default port is 9876",
                ) from refusal
        raise errors.NameServerUnreachable("no name server answers: " + "; ".join(failures))
