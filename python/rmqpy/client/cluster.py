"""Connection to a cluster, with routes and name servers, shared by all clients of one configuration in a process.

Invariant: equal configurations share one connection while a client holds it. The last release closes it, unless it is
one of the few kept for later holders. A connection belongs to its process: a child creates its own after `fork()`.
Any thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from rmqpy import errors
from rmqpy._native import Client
from rmqpy.client.heartbeats import ProducerHeartbeats
from rmqpy.client.routes import Routes
from rmqpy.config.client import ClientConfig
from rmqpy.remoting.nameservers import NameServers

T = TypeVar("T")

#: Reentrant, because a finalizer may call `release` in a thread that holds the lock.
_LOCK = threading.RLock()
_HELD: Final[dict[tuple[int, ClientConfig], ClusterConnection]] = {}
#: Connections without a holder, most recently used last.
_KEPT: Final[dict[tuple[int, ClientConfig], ClusterConnection]] = {}
_KEPT_MAX: Final = 8
#: Libraries that replace threads: the module, a check whether it has patched threading, and the patch call.
_REPLACING: Final = (
    ("gevent.monkey", "is_module_patched", "threading", "gevent.monkey.patch_all"),
    ("eventlet.patcher", "is_monkey_patched", "thread", "eventlet.monkey_patch"),
)


class ClusterConnection:
    """A native client with its name servers and routes, and the objects that its holders share."""

    def __init__(self, config: ClientConfig) -> None:
        _check_threads()
        self.config = config
        self.client = Client(
            connect_timeout_ms=round(config.connect_timeout * 1000),
            binary=config.header == "binary",
            namespace=config.namespace,
            credentials=config.signing,
            tls=config.tls.native() if config.tls else None,
        )
        self.servers = NameServers(config.namesrv, timeout=config.request_timeout, unit=config.unit)
        self.routes = Routes(
            self.servers,
            refresh_s=config.route_refresh,
            address_map=dict(config.address_map),
            zone=config.zone,
            is_vip=config.vip,
        )
        self.heartbeats = ProducerHeartbeats(self.client, config, self.servers)
        self._shared: dict[Callable[[ClusterConnection], Any], Any] = {}
        self._holders = 0
        self._key = (os.getpid(), config)

    @classmethod
    def hold(cls, config: ClientConfig) -> ClusterConnection:
        """Return the connection of this configuration. The caller gives it back with `release`."""
        with _LOCK:
            key = (os.getpid(), config)
            while True:
                cluster = _HELD.get(key)
                if cluster is None:
                    cluster = _HELD[key] = cls(config)
                cluster._holders += 1
                if _HELD.get(key) is cluster:
                    return cluster

    def shared(self, kind: Callable[[ClusterConnection], T]) -> T:
        """Return the object of this kind that all holders share; the first call creates it."""
        with _LOCK:
            if kind not in self._shared:
                self._shared[kind] = kind(self)
            found: T = self._shared[kind]
            return found

    def keep(self) -> None:
        """Keep the connection after its last release, until `_KEPT_MAX` others are kept after it. Called by a
        holder."""
        surplus = None
        with _LOCK:
            if _KEPT.pop(self._key, None) is None:
                self._holders += 1
            _KEPT[self._key] = self
            if len(_KEPT) > _KEPT_MAX:
                # Connections of a parent process are evicted first; `release` does not close them.
                surplus = _KEPT.pop(next(iter(_KEPT)))
        if surplus is not None:
            surplus.release()

    def release(self, *, grace_s: float = 0.0) -> None:
        """End one hold. The last release closes the connections after `grace_s` for sends in flight."""
        with _LOCK:
            self._holders -= 1
            if self._holders > 0:
                return
            _HELD.pop(self._key, None)
        self.close(grace_s=grace_s)

    def close(self, *, grace_s: float = 0.0) -> None:
        """Close a connection that was created for one holder, not by `hold`."""
        if self._key[0] == os.getpid():
            self.client.close(grace_ms=round(grace_s * 1000))


def _check_threads() -> None:
    """Raise `ConfigError` if a library has patched threads: a native wait would block all green threads. Those of the
    main thread, that is: on Linux its id is the id of the process, and another one is the caller's to block."""
    if threading.get_native_id() != os.getpid() and sys.platform == "linux":
        return
    for module, check, name, patch in _REPLACING:
        if module in sys.modules and getattr(sys.modules[module], check)(name):
            raise errors.ConfigError(
                f"{module} has patched threading, and rmqpy would block all green threads when it waits",
                hint=f"do not patch threads: {patch}(thread=False)",
            )


def _forget_parents_lock() -> None:
    # Another thread of the parent may have held the lock during the fork, so the child needs a new one.
    global _LOCK
    _LOCK = threading.RLock()


os.register_at_fork(after_in_child=_forget_parents_lock)
