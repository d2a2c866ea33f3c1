"""Connection to a cluster: shared by all clients of one configuration in a process, with routes and name servers.

Invariant: equal configurations get one connection while a client holds it, and the last holder's release closes it. It
belongs to the process that made it: after `fork()` the child makes its own. Any thread.
"""

import os
import threading
from typing import Final

from rmqpy._native import Client
from rmqpy.client.routes import Routes
from rmqpy.config.client import ClientConfig
from rmqpy.remoting.nameservers import NameServers

_LOCK = threading.Lock()
_HELD: Final[dict[tuple[int, ClientConfig], "ClusterConnection"]] = {}


class ClusterConnection:
    """One native client and what is known through it."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.client = Client(
            connect_timeout_ms=round(config.connect_timeout * 1000), binary=config.header == "binary"
        )
        self.servers = NameServers(config.namesrv, timeout=config.request_timeout)
        self.routes = Routes(
            self.servers,
            refresh_s=config.route_refresh,
            address_map=dict(config.address_map),
            zone=config.zone,
        )
        self._holders = 0
        self._key = (os.getpid(), config)

    @classmethod
    def hold(cls, config: ClientConfig) -> "ClusterConnection":
        """The connection of this configuration; give it back with `release`."""
        with _LOCK:
            key = (os.getpid(), config)
            cluster = _HELD.get(key)
            if cluster is None:
                cluster = _HELD[key] = cls(config)
            cluster._holders += 1
            return cluster

    def release(self, *, grace_s: float = 0.0) -> None:
        """End one hold. The last one closes the connections, giving what is under way `grace_s` to leave."""
        with _LOCK:
            self._holders -= 1
            if self._holders > 0:
                return
            _HELD.pop(self._key, None)
        self.close(grace_s=grace_s)

    def close(self, *, grace_s: float = 0.0) -> None:
        """End a connection that was made for one holder alone, not with `hold`."""
        if self._key[0] == os.getpid():
            self.client.close(grace_ms=round(grace_s * 1000))


def _forget_parents_lock() -> None:
    # Another thread of the parent may have held the lock at the moment of the fork: the child needs a free one.
    global _LOCK
    _LOCK = threading.Lock()


os.register_at_fork(after_in_child=_forget_parents_lock)
