"""Followed peer: requests to a slave's master, which end when another broker is the master.

Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rmqpy._native import Call
from rmqpy.protocol.declare import Request
from rmqpy.remoting.client import Peer

R = TypeVar("R")


class MasterMoved(Exception):
    """Another broker is the master."""


class FollowedPeer(Peer):
    """The master at one address. A request that it holds ends with `MasterMoved`."""

    def __init__(self, connect: Callable[[str], Peer], address: str, moved: asyncio.Event) -> None:
        """`moved` is set when another broker is the master."""
        self.address = address
        self._connect = connect
        self._moved = moved

    async def call(self, ask: Request[R], *, timeout: float | None = None) -> R:  # noqa: ASYNC109 - as in Peer
        return await self._unless_moved(self._connect(self.address).call(ask, timeout=timeout))

    async def forward(self, ask: Request[Any], *, timeout: float | None = None) -> Call:  # noqa: ASYNC109
        return await self._unless_moved(self._connect(self.address).forward(ask, timeout=timeout))

    async def _unless_moved(self, call: Coroutine[Any, Any, R]) -> R:
        loop = asyncio.get_running_loop()
        answer, moved = loop.create_task(call), loop.create_task(self._moved.wait())
        try:
            await asyncio.wait({answer, moved}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            raise MasterMoved
        finally:
            answer.cancel()
            moved.cancel()
