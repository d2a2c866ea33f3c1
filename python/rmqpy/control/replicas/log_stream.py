"""The log on its way from a master to its slaves: starts the native half of it, and says where it is and how it goes.

A master waits for slaves at a port of its own; a slave copies from where the configuration, or a name server, says that
its master is. Threads: the event loop's; the native half has one of its own.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
from collections.abc import Callable
from typing import Final

from rmqpy._native import Replication, Server, Store
from rmqpy.config.addresses import listening
from rmqpy.config.replication import REPLICAS_MAX, ReplicationConfig
from rmqpy.control.replicas.alignment import LogAlignment
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.master_search import MasterSearch
from rmqpy.remoting.certificates import Certificates
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

#: How often what happened to connections is written to the log.
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
    ) -> None:
        """With `needs_ticket` nobody is a slave of this master who shows no `ticket`, see `trusted_addresses`."""
        self._config = config
        self._slaves_most = 0
        #: There should be so many, whatever the configuration says.
        self.slaves_min = 0
        self._native = Replication(
            store,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            silence_ms_max=config.silence_ms_max,
            transfer_bytes_max=config.transfer_bytes_max,
            gap_bytes_max=config.gap_bytes_max,
            copies=config.copies,
            slaves_max=REPLICAS_MAX,
            copies_last_file=config.copies_last_file,
            needs_ticket=needs_ticket,
            trusted=config.trusted_addresses,
            server_tls=certificates.server if certificates else None,
            client_tls=certificates.client if certificates else None,
        )

    def listen(
        self, port: int, *, takes_any_port: bool, broker_id: int, epoch: int | None, server: Server
    ) -> int:
        """Wait for slaves; the port that is listened on. Where `port` is in use and `takes_any_port`, it is another.

        The log goes on in its last epoch, or in `epoch` where the broker was promoted to lead that. `server` stores
        the messages, and serves slaves that keep up.

        Raises `AddressError`, or `StoreError` where the epochs cannot be kept.
        """
        host = self._config.listen_host
        with listening("haListenPort", host, port):
            try:
                _, bound = self._native.listen(host, port, broker_id=broker_id, epoch=epoch, server=server)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not takes_any_port:
                    raise
                _, bound = self._native.listen(host, 0, broker_id=broker_id, epoch=epoch, server=server)
        return bound

    def ticket(self) -> bytes:
        """What lets one slave in, soon."""
        ticket = secrets.token_bytes(TICKET_BYTES)
        self._native.expect(ticket)
        return ticket

    def follow(
        self, name: str, master: KnownMaster, peer: Callable[[str], Peer], on_cut: Callable[[int], None]
    ) -> LogAlignment:
        """Copy the log of the master of this name, once it is known where it is, and the two have been compared.

        Returns what compares them, which is to be stopped before the stream. Raises `StoreError`.
        """
        self._native.follow()
        search = MasterSearch(name, self._config.master_address, master, peer)
        alignment = LogAlignment(self._native, search, on_cut)
        alignment.start()
        if self._config.master_address:
            self._native.set_master_address(self._config.master_address)
            return alignment
        master.on_replica_address = self._native.set_master_address
        if master.replica_address is not None:
            master.on_replica_address(master.replica_address)
        return alignment

    def epochs(self) -> list[tuple[int, int]]:
        """As `Replication.epochs`."""
        return self._native.epochs()

    def epoch(self) -> int:
        """The youngest epoch of the log; 0 where there is none."""
        known = self._native.epochs()
        return known[-1][0] if known else 0

    def range(self) -> tuple[int, int]:
        """As `Replication.range`."""
        return self._native.range()

    def digest(self, begin: int, end: int) -> int | None:
        """As `Replication.digest`."""
        return self._native.digest(begin, end)

    def refused(self) -> list[tuple[str, str, bool]]:
        """As `Replication.refused`."""
        return self._native.refused()

    def slaves(self) -> list[tuple[str, int, int, int, bool, int]]:
        """As `Replication.slaves`."""
        return self._native.slaves()

    @property
    def slaves_expected(self) -> int:
        """Slaves that a master should have: as `totalReplicas` says, or as many as it had since it started; the master
        that it has replaced is one."""
        return max(self._config.replicas - 1, self._slaves_most, self.slaves_min)

    @property
    def copies(self) -> tuple[int, int]:
        """Copies that a reply waits for, and those without which messages are refused, the master's own among them."""
        return self._config.copies, self._config.copies_min

    def master(self) -> tuple[str | None, bool, int, int | None, str | None, bool] | None:
        """As `Replication.master`."""
        return self._native.master()

    def look(self) -> None:
        """Write what happened to the connections since the last call, and count the slaves."""
        self._slaves_most = max(self._slaves_most, len(self.slaves()))
        self._log_events()

    def _log_events(self) -> None:
        for is_warning, what in self._native.events():
            log.log(logging.WARNING if is_warning else logging.INFO, "%s", what)

    async def stop(self) -> None:
        """End all connections. Idempotent."""
        await asyncio.to_thread(self._native.stop)
        self._log_events()
