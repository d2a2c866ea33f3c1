"""Connection to a cluster: shared by all clients of one configuration in a process, with routes and name servers.

Invariant: equal configurations get one connection while a client holds it, and the last holder's release closes it,
unless it is one of the few that are kept for later holders. It
belongs to the process that made it: after `fork()` the child makes its own. Any thread.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Final

from rmqpy import errors
from rmqpy._native import Client
from rmqpy.client.heartbeats import ProducerHeartbeats
from rmqpy.client.routes import Routes
from rmqpy.config.client import ClientConfig
from rmqpy.remoting.nameservers import NameServers

if TYPE_CHECKING:
    from rmqpy.client.replies import Replies
    from rmqpy.client.transaction_checks import TransactionChecks

#: May be taken again by the thread that has it: a release can be a finalizer's.
_LOCK = threading.RLock()
_HELD: Final[dict[tuple[int, ClientConfig], ClusterConnection]] = {}
#: Kept without a holder, those used last at the end.
_KEPT: Final[dict[tuple[int, ClientConfig], ClusterConnection]] = {}
_KEPT_MAX: Final = 8
#: Libraries that replace threads: a module, the question whether it has, and the call that does so.
_REPLACING: Final = (
    ("gevent.monkey", "is_module_patched", "threading", "gevent.monkey.patch_all"),
    ("eventlet.patcher", "is_monkey_patched", "thread", "eventlet.monkey_patch"),
)


class ClusterConnection:
    """One native client and what is known through it."""

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
        self._transaction_checks: TransactionChecks | None = None
        self._replies: Replies | None = None
        self._holders = 0
        self._key = (os.getpid(), config)

    @classmethod
    def hold(cls, config: ClientConfig) -> ClusterConnection:
        """The connection of this configuration; give it back with `release`."""
        with _LOCK:
            key = (os.getpid(), config)
            while True:
                cluster = _HELD.get(key)
                if cluster is None:
                    cluster = _HELD[key] = cls(config)
                cluster._holders += 1
                if _HELD.get(key) is cluster:
                    return cluster

    @property
    def transaction_checks(self) -> TransactionChecks:
        """Questions of brokers to the producers that share this connection."""
        # Few producers have any, and its module imports asyncio.
        from rmqpy.client.transaction_checks import TransactionChecks

        with _LOCK:
            if self._transaction_checks is None:
                self._transaction_checks = TransactionChecks(self.client, timeout=self.config.request_timeout)
            return self._transaction_checks

    @property
    def replies(self) -> Replies:
        """Replies to the requests of the producers that share this connection."""
        # As above.
        from rmqpy.client.replies import Replies

        with _LOCK:
            if self._replies is None:
                self._replies = Replies(self.client, self.heartbeats)
            return self._replies

    def keep(self) -> None:
        """Let it outlive its holders, until `_KEPT_MAX` others were kept after it. To be called by a holder."""
        surplus = None
        with _LOCK:
            if _KEPT.pop(self._key, None) is None:
                self._holders += 1
            _KEPT[self._key] = self
            if len(_KEPT) > _KEPT_MAX:
                # Those of a parent process come first, in the end: `release` leaves their connections alone.
                surplus = _KEPT.pop(next(iter(_KEPT)))
        if surplus is not None:
            surplus.release()

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


def _check_threads() -> None:
    """Raise `ConfigError` where a library has replaced threads: a wait in the native half would stop all of them."""
    for module, check, name, patch in _REPLACING:
        if module in sys.modules and getattr(sys.modules[module], check)(name):
            raise errors.ConfigError(
                f"{module} has replaced Python's threads, and one wait of rmqpy would stop all of them",
                hint=f"leave threads as they are: {patch}(thread=False)",
            )


def _forget_parents_lock() -> None:
    # Another thread of the parent may have held the lock at the moment of the fork: the child needs a free one.
    global _LOCK
    _LOCK = threading.RLock()


os.register_at_fork(after_in_child=_forget_parents_lock)
