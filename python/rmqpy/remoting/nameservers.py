"""Several name servers that do not know each other, asked as one.

Owns the choice among them: one is asked until it fails, then the next. Each starts at a random one, so that
clients spread. Any thread: the choice is a single number, and two threads that move it on at once lose nothing.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

from rmqpy import errors
from rmqpy.protocol import declare
from rmqpy.remoting.client import Caller

R = TypeVar("R")


class NameServers:
    """The configured name servers."""

    def __init__(self, addresses: Sequence[str], *, timeout: float = 3.0) -> None:
        self.addresses = tuple(addresses)
        self.timeout = timeout
        self._turn = random.randrange(len(self.addresses))

    @property
    def current(self) -> str:
        """The one that is asked now."""
        return self.addresses[self._turn % len(self.addresses)]

    def fail(self, address: str) -> None:
        """Ask the next one from now on, unless another thread has already moved on from `address`."""
        if self.current == address:
            self._turn = (self._turn + 1) % len(self.addresses)

    async def ask(self, caller: Caller, ask: declare.Request[R]) -> R:
        """The reply of the first name server that gives one; its refusal is an answer as well.

        Raises `NameServerUnreachable`, with what each of them said, when none does.
        """
        failures = []
        for _ in self.addresses:
            address = self.current
            try:
                return await caller.ask(address, ask, timeout=self.timeout)
            except (errors.ConnectError, errors.RequestTimeout) as failure:
                failures.append(str(failure))
                self.fail(address)
        raise errors.NameServerUnreachable("no name server answers: " + "; ".join(failures))
