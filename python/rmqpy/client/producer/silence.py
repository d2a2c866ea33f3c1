"""Silence: ends connections to brokers that do not answer, once another broker leads in their place.

A machine that is cut off or paused closes no connection, so its sends would wait for their timeout. The routes of a
silent master are looked up early; when a name server names another one, the connection to the silent one ends, and its
sends are retried immediately. A master that is only slow keeps its sends.

Any thread.
"""

from __future__ import annotations

import time
from typing import Final

from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.remoting.client import Caller

#: The age of an unanswered request from which its broker counts as silent.
SILENT_S: Final = 0.5
#: The interval of looking while a broker is silent.
_LOOK_S: Final = 0.1


class SilentMasters:
    """The masters of one cluster connection that do not answer."""

    def __init__(self, cluster: ClusterConnection) -> None:
        self._cluster = cluster
        self._looked_at = 0.0
        self._has_found = False

    @property
    def wait_s(self) -> float:
        """The time without an outcome after which a send looks here: short while a broker is silent."""
        is_recent = time.monotonic() - self._looked_at < SILENT_S
        return _LOOK_S if self._has_found and is_recent else SILENT_S

    def look(self, caller: Caller) -> float:
        """Look for successors of silent masters; return the seconds until the next look. Never waits: the reply of a
        look-up counts at the next call."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S:
            return _LOOK_S
        self._looked_at = now
        client, routes = self._cluster.client, self._cluster.routes
        try:
            silent = client.silent(SILENT_S)
            for address in silent:
                routes.doubt_master(address, caller)
                if routes.is_replaced(address):
                    client.abandon(address)
        except errors.ClosedError:
            return SILENT_S
        self._has_found = bool(silent)
        return self.wait_s
