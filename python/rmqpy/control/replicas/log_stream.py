"""The log on its way from a master to its slaves: starts the native half of it, and says where it is and how it goes.

A master waits for slaves at a port of its own; a slave copies from where the configuration, or a name server, says that
its master is. Threads: the event loop's; the native half has one of its own.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Final

from rmqpy._native import Replication, Store
from rmqpy.config.replication import REPLICAS_MAX, ReplicationConfig
from rmqpy.control.replicas.known_master import KnownMaster

log = logging.getLogger(__name__)

#: How often what happened to connections is written to the log.
STREAM_EVENTS_SECONDS: Final = 1.0


class LogStream:
    """A master's log to its slaves, or a slave's from its master."""

    def __init__(self, config: ReplicationConfig, store: Store) -> None:
        self._config = config
        self._native = Replication(
            store,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            silence_ms_max=config.silence_ms_max,
            transfer_bytes_max=config.transfer_bytes_max,
            gap_bytes_max=config.gap_bytes_max,
            copies=config.copies,
            slaves_max=REPLICAS_MAX,
            copies_last_file=config.copies_last_file,
        )

    def listen(self, port: int, *, takes_any_port: bool) -> int:
        """Wait for slaves; the port that is listened on. Where `port` is in use and `takes_any_port`, it is another.

        Raises `OSError`.
        """
        host = self._config.listen_host
        try:
            _, bound = self._native.listen(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not takes_any_port:
                raise
            _, bound = self._native.listen(host, 0)
        return bound

    def follow(self, master: KnownMaster) -> None:
        """Copy the log of the master, once it is known where it is. Raises `StoreError`."""
        self._native.follow()
        if self._config.master_address:
            self._native.set_master_address(self._config.master_address)
            return
        master.on_replica_address = self._native.set_master_address
        if master.replica_address is not None:
            master.on_replica_address(master.replica_address)

    def slaves(self) -> list[tuple[str, int, int | None, int | None, bool, int]]:
        """As `Replication.slaves`."""
        return self._native.slaves()

    def master(self) -> tuple[str | None, bool, int, int | None, str | None] | None:
        """As `Replication.master`."""
        return self._native.master()

    def log_events(self) -> None:
        """Write what happened to the connections since the last call."""
        for is_warning, what in self._native.events():
            log.log(logging.WARNING if is_warning else logging.INFO, "%s", what)

    async def stop(self) -> None:
        """End all connections. Idempotent."""
        await asyncio.to_thread(self._native.stop)
        self.log_events()
