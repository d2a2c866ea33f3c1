"""Client expiry: drops clients without heartbeats and notifies their groups. Threads: the event loop's."""

from __future__ import annotations

import logging

from rmqpy._native import Server
from rmqpy.control.clients.registry import Consumers, Producers

log = logging.getLogger(__name__)


def drop_silent(consumers: Consumers, producers: Producers, server: Server, expiry_ms: int) -> None:
    """Close connections without a heartbeat for `expiry_ms`, and remove their clients from all groups.

    A connection whose first heartbeat is in progress has no age; a closed one is not listed.
    """
    for connection in {*consumers.connections(), *producers.connections()}:
        age_ms = server.heartbeat_age_ms(connection)
        if age_ms is not None and age_ms > expiry_ms:
            log.info("closing connection %d: no heartbeat for %d s", connection, age_ms // 1_000)
            server.close_connection(connection)
            producers.drop(connection)
            consumers.drop(connection)
