"""Several name servers that do not know each other, asked as one.

Owns the choice among them: one is asked until it fails, then the next. Each starts at a random one, so that
clients spread. Any thread: the choice is a single number, and two threads that move it on at once lose nothing.
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
    """The configured name servers, or those that an address server tells."""

    def __init__(self, addresses: Sequence[str], *, timeout: float = 3.0, unit: str = "") -> None:
        """`addresses`: each `host:port`; or the URL of an address server, alone. `unit`: for that one."""
        self.timeout = timeout
        self._fixed = tuple(addresses)
        self._address_server: AddressServer | None = None
        if "://" in addresses[0]:
            self._address_server = AddressServer(addresses[0], unit=unit, timeout=timeout)
        self._turn = random.randrange(1 << 16)

    @property
    def addresses(self) -> tuple[str, ...]:
        """All of them. Where an address server has not been asked yet, this blocks, and may raise
        `NameServerUnreachable`."""
        return self._fixed if self._address_server is None else self._address_server.newest()

    async def ready(self, caller: Caller) -> None:
        """Until `addresses` does not block. Raises `NameServerUnreachable`."""
        if self._address_server is not None:
            await self._address_server.ready(caller)

    @property
    def current(self) -> str:
        """The one that is asked now."""
        every = self.addresses
        return every[self._turn % len(every)]

    def fail(self, address: str) -> None:
        """Ask the next one from now on, unless another thread has already moved on from `address`."""
        if self.current == address:
            self._turn += 1

    async def ask(self, caller: Caller, ask: declare.Request[R]) -> R:
        """The reply of the first name server that gives one; its refusal is an answer as well.

        Raises `NameServerUnreachable`, with what each of them said, when none does.
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
                # Every name server knows what is asked of it here; of the others a broker is the likeliest.
                raise errors.Unsupported(
                    f"{address} is no name server, but probably a broker: {refusal.args[0]}",
                    code=refusal.code,
                    remark=refusal.remark,
                    broker=address,
                    hint="give the address of a name server; its port is 9876, unless it was told another",
                ) from refusal
        raise errors.NameServerUnreachable("no name server answers: " + "; ".join(failures))
