"""Unregistration in batches: brokers that leave in one turn of the event loop go in one pass over the tables.

When a rack loses power a hundred connections end at once, and each pass looks at every topic. Owns the brokers that
have left and are still in the tables. Invariant: no broker registers while one that left before it is still there, so
that a broker which comes back at once stays.

Threads: the event loop's only.
"""

import asyncio
import logging
from collections.abc import Callable

from rmqpy.routing.brokers import BrokerKey
from rmqpy.routing.configuration import Configuration
from rmqpy.routing.routes import Routes

log = logging.getLogger(__name__)


class BatchUnregistration:
    """The brokers that are about to be taken out of the tables."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._pending: list[BrokerKey] = []

    def unregistered(self, broker: BrokerKey) -> None:
        """A broker leaves on purpose."""
        self._add([broker])

    def disconnected(self, connection: int) -> None:
        """A connection has ended: its brokers are gone, at once and not after their timeout."""
        self._add(self._routes.brokers_of(connection))

    def settle(self) -> None:
        """Take out the brokers that have left so far."""
        pending, self._pending = self._pending, []
        if pending:
            self._routes.unregister(pending)

    def _add(self, brokers: list[BrokerKey]) -> None:
        if brokers and not self._pending:
            asyncio.get_running_loop().call_soon(self.settle)
        self._pending += brokers


async def expire_silent(routes: Routes, configuration: Configuration, close: Callable[[int], None]) -> None:
    """Until cancelled, take out brokers that fell silent without closing their connection, and close it.

    Their host died, or their cable was cut.
    """
    while True:
        await configuration.wait_for_change(configuration.current.scan_interval_ms / 1000)
        try:
            for connection in routes.expire():
                close(connection)
        except Exception:
            log.exception("silent brokers were not taken out, which is tried again")
