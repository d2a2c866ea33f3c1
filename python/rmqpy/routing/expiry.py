"""Brokers that fall silent without closing their connection: a dead host, a cut cable."""

from collections.abc import Callable

from rmqpy.routing.configuration import Configuration
from rmqpy.routing.routes import Routes


async def watch(routes: Routes, configuration: Configuration, close: Callable[[int], None]) -> None:
    """Look for them, and close the connections they used, until cancelled."""
    while True:
        await configuration.wait_for_change(configuration.current.scan_interval_ms / 1000)
        for connection in routes.expire():
            close(connection)
