"""Client expiry: clients without heartbeats are dropped, and their groups notified. Threads: the event loop's."""

from __future__ import annotations

import logging

from rmqpy._native import Server
from rmqpy.control.clients.registry import Consumers, Producers

log = logging.getLogger(__name__)


def drop_silent(consumers: Consumers, producers: Producers, server: Server, expiry_ms: int) -> None:
    """Close connections that have not sent a heartbeat for so long and take their clients out of all groups.

    A connection whose first heartbeat is still being worked on has no age; one that is gone is no longer listed.
    """
    for connection in {*consumers.connections(), *producers.connections()}:
        age_ms = server.heartbeat_age_ms(connection)
        if age_ms is not None and age_ms > expiry_ms:
            log.info(
                "connection %d has sent no heartbeat for %d s and is closed", connection, age_ms // 1_000
            )
            server.close_connection(connection)
            producers.drop(connection)
            consumers.drop(connection)
