"""Brokers that leave: those of one turn of the event loop go together, in one pass over the tables.

When a rack loses power a hundred connections end at once, and each pass looks at every topic. Owns who has left and
is still in the tables. Invariant: no broker registers while somebody who left before it is still there, so that one
which comes back at once stays.

Threads: the event loop's only.
"""

import asyncio

from rmqpy.routing.routes import Leaver, Routes


class Departures:
    """Who is about to be taken out of the tables."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._leaving: list[Leaver] = []

    def unregistered(self, leaver: Leaver) -> None:
        """A broker has said goodbye."""
        self._add([leaver])

    def disconnected(self, connection: int) -> None:
        """A connection has ended: whoever was last heard there is gone, at once and not after its timeout."""
        self._add(self._routes.heard_on(connection))

    def settle(self) -> None:
        """Take out who has left so far."""
        leaving, self._leaving = self._leaving, []
        if leaving:
            self._routes.unregister(leaving)

    def _add(self, leavers: list[Leaver]) -> None:
        if leavers and not self._leaving:
            asyncio.get_running_loop().call_soon(self.settle)
        self._leaving += leavers
