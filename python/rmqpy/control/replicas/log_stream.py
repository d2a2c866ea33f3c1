"""Log stream: starts the native replication from a master to its slaves, and reports its state.

A master listens for slaves on a separate port; a slave copies from the master that the configuration or a name server
names. Threads: the event loop's; the native module has its own thread.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final

from rmqpy._native import ConnectedSlave, FollowedMaster, RefusedSlave, Replication, Server, Store
from rmqpy.config.addresses import listening
from rmqpy.config.replication import REPLICAS_MAX, ReplicationConfig
from rmqpy.control.replicas.alignment import LogAlignment
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.lost_slaves import LostSlave, LostSlaves
from rmqpy.control.replicas.master_search import MasterSearch
from rmqpy.remoting.certificates import Certificates
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

#: The interval at which connection events are logged.
STREAM_LOOK_SECONDS: Final = 1.0
TICKET_BYTES: Final = 16


class LogStream:
    """A master's log to its slaves, or a slave's from its master."""

    def __init__(
        self,
        config: ReplicationConfig,
        store: Store,
        certificates: Certificates | None = None,
        *,
        needs_ticket: bool = False,
        slaves_min: int = 0,
        elapsed: Callable[[], float],
    ) -> None:
        """`needs_ticket`: accept only slaves that show a `ticket`, or from `trusted_addresses`. `slaves_min`: the
        minimum number of expected slaves, whatever the configuration."""
        self._config = config
        self._slaves_most = 0
        self._slaves_min = slaves_min
        self._lost = LostSlaves(elapsed)
        self._native = Replication(
            store,
            config,
            slaves_max=REPLICAS_MAX,
            needs_ticket=needs_ticket,
            server_tls=certificates.server if certificates else None,
            client_tls=certificates.client if certificates else None,
        )

    def listen(
        self,
        port: int,
        *,
        takes_any_port: bool,
        broker_id: int,
        epoch: int | None,
        server: Server,
        in_sync: list[int] | None = None,
    ) -> int:
        """Listen for slaves; return the port. If `port` is in use and `takes_any_port` is set, another one is chosen.

        The log continues in its last epoch, or in `epoch` after a promotion. `server` stores
        the messages, and serves slaves that keep up. `in_sync` has the other replicas in sync, if a controller
        knows them.

        Raises `AddressError`, and `StoreError` if the epochs cannot be stored.
        """
        host = self._config.listen_host
        with listening("haListenPort", host, port):
            listen = partial(
                self._native.listen, host, broker_id=broker_id, epoch=epoch, server=server, in_sync=in_sync
            )
            try:
                _, bound = listen(port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not takes_any_port:
                    raise
                _, bound = listen(0)
        return bound

    def ticket(self, broker_id: int | None, *, is_observer: bool = False) -> bytes:
        """Return a short-lived ticket that admits one slave, which is the broker with this id, or one observer."""
        ticket = secrets.token_bytes(TICKET_BYTES)
        self._native.expect(ticket, broker_id, is_observer=is_observer)
        return ticket

    def require(self, slaves: list[int] | None, count: int) -> None:
        """See `Replication.require`."""
        self._native.require(slaves, count)

    def confirmed(self) -> int:
        """See `Replication.confirmed`."""
        return self._native.confirmed()

    def epoch_start(self) -> int:
        """The begin of the newest epoch; 0 without one."""
        known = self._native.epochs()
        return known[-1][1] if known else 0

    def follow(
        self,
        name: str,
        master: KnownMaster,
        peer: Callable[[str], Peer],
        on_cut: Callable[[int], None],
        *,
        confirmed: int = 0,
    ) -> LogAlignment:
        """Copy the log of the master of this name, when its address is known and the logs were compared. Nothing before
        `confirmed` is cut.

        Returns the alignment, which must be stopped before the stream. Raises `StoreError`.
        """
        self._native.follow()
        config = self._config
        given = "" if config.is_controlled else config.master_address
        search = MasterSearch(name, given, master, peer)
        broker_id = config.broker_id if config.is_controlled and config.broker_id > 0 else None
        alignment = LogAlignment(self._native, search, on_cut, broker_id=broker_id, confirmed=confirmed)
        alignment.start()
        if given:
            self._native.set_master_address(given)
            return alignment
        master.on_replica_address = self._native.set_master_address
        if master.replica_address is not None:
            master.on_replica_address(master.replica_address)
        return alignment

    def epochs(self) -> list[tuple[int, int]]:
        """See `Replication.epochs`."""
        return self._native.epochs()

    def epoch(self) -> int:
        """The newest epoch of the log; 0 without one."""
        known = self._native.epochs()
        return known[-1][0] if known else 0

    def range(self) -> tuple[int, int]:
        """See `Replication.range`."""
        return self._native.range()

    def digest(self, begin: int, end: int) -> int | None:
        """See `Replication.digest`."""
        return self._native.digest(begin, end)

    def refused(self) -> list[RefusedSlave]:
        """See `Replication.refused`."""
        return self._native.refused()

    def slaves(self) -> list[ConnectedSlave]:
        """See `Replication.slaves`."""
        return self._native.slaves()

    def lost_slaves(self) -> list[tuple[LostSlave, int]]:
        """Return the disconnected slaves, and their silence in milliseconds."""
        return self._lost.now()

    @property
    def slaves_expected(self) -> int:
        """The number of slaves that a master should have: `totalReplicas`, or the most since its start, including a
        replaced master."""
        return max(self._config.replicas - 1, self._slaves_most, self._slaves_min)

    @property
    def waits_for_slaves(self) -> bool:
        """Whether fewer slaves than expected, or than replies wait for, have been connected since the start."""
        return self._slaves_most < max(self.slaves_expected, self._config.copies - 1)

    @property
    def copies(self) -> tuple[int, int]:
        """The copies that a reply waits for, and the minimum to accept messages, including the master's own."""
        # With a controller the set of replicas in sync shrinks instead.
        return 1 if self._config.is_controlled else self._config.copies, self._config.copies_min

    def master(self) -> FollowedMaster | None:
        """See `Replication.master`."""
        return self._native.master()

    def look(self) -> None:
        """Log the connection events since the last call, count the slaves, and note lost ones."""
        slaves = self.slaves()
        self._slaves_most = max(self._slaves_most, len(slaves))
        self._lost.look(slaves)
        self._log_events()

    def _log_events(self) -> None:
        for is_warning, what in self._native.events():
            log.log(logging.WARNING if is_warning else logging.INFO, "%s", what)

    async def stop(self) -> None:
        """Close all connections. Idempotent."""
        await asyncio.to_thread(self._native.stop)
        self._log_events()
