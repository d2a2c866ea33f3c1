"""Batched unregistration: brokers that leave in one turn of the event loop share one pass over the tables.

When a rack loses power, a hundred connections end together, and each pass visits every topic. Owns the brokers that
have left but are still in the tables. Invariant: no broker registers while an earlier broker's removal is pending, so
a broker that returns immediately stays.

Threads: only the event loop's.
"""

import asyncio
import logging
from collections.abc import Callable

from rmqpy.config.namesrv import NameServerConfig
from rmqpy.remoting.configuration import Configuration
from rmqpy.routing.brokers import BrokerKey
from rmqpy.routing.routes import Routes

log = logging.getLogger(__name__)


class BatchUnregistration:
    """Brokers to be removed from the tables."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._pending: list[BrokerKey] = []
        #: Those of them that asked for it.
        self._stopped: set[BrokerKey] = set()

    def unregistered(self, broker: BrokerKey) -> None:
        """Unregister a broker on request."""
        self._stopped.add(broker)
        self._add([broker])

    def disconnected(self, connection: int) -> None:
        """Remove the brokers of an ended connection without waiting for their timeout."""
        self._add(self._routes.brokers_of(connection))

    def settle(self) -> None:
        """Remove the brokers that have left so far."""
        pending, self._pending = self._pending, []
        stopped, self._stopped = self._stopped, set()
        if pending:
            self._routes.unregister(pending, stopped)

    def _add(self, brokers: list[BrokerKey]) -> None:
        if brokers and not self._pending:
            asyncio.get_running_loop().call_soon(self.settle)
        self._pending += brokers


async def expire_silent(
    routes: Routes, configuration: Configuration[NameServerConfig], close: Callable[[int], None]
) -> None:
    """Until cancelled, remove brokers that timed out without closing their connection, and close it.

    Their host died, or the network broke.
    """
    while True:
        await configuration.wait_for_change(configuration.current.scan_interval_ms / 1000)
        try:
            for connection in routes.expire():
                close(connection)
        except Exception:
            log.exception("cannot remove timed-out brokers, retrying")
