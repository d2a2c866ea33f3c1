"""Clients that fell silent: dropped, and the rest of their groups told. Threads: the event loop's."""

from __future__ import annotations

import logging
from typing import Protocol

from rmqpy.control.clients.registry import Consumers, Producers

log = logging.getLogger(__name__)


class Connections(Protocol):
    """The server's connections."""

    def heartbeat_age_ms(self, connection: int) -> int | None: ...
    def close_connection(self, connection: int) -> None: ...


def drop_silent(consumers: Consumers, producers: Producers, connections: Connections, expiry_ms: int) -> None:
    """Close connections that have not sent a heartbeat for so long and take their clients out of all groups.

    A connection whose first heartbeat is still being worked on has no age; one that is gone is no longer listed.
    """
    for connection in {*consumers.connections(), *producers.connections()}:
        age_ms = connections.heartbeat_age_ms(connection)
        if age_ms is not None and age_ms > expiry_ms:
            log.info(
                "connection %d has sent no heartbeat for %d s and is closed", connection, age_ms // 1_000
            )
            connections.close_connection(connection)
            producers.drop(connection)
            consumers.drop(connection)
