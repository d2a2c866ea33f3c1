"""Master role: listens for slaves, takes over from a slave that acted for it, and delivers.

Invariants: requests are served once open transactions are known, and nothing is delivered before the progress of an
acting slave is known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rmqpy._native import Server
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.addresses import Addresses
from rmqpy.control.duties import MasterDuties
from rmqpy.control.periodic import PeriodicTasks
from rmqpy.control.replicas.leadership import Leadership
from rmqpy.control.replicas.log_stream import LogStream
from rmqpy.control.replicas.succession import Succession
from rmqpy.protocol.requests.leadership import next_epoch
from rmqpy.protocol.requests.routes import MASTER_ID


class MasterRole:
    """The parts of a leading broker."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        addresses: Addresses,
        leadership: Leadership,
        *,
        stream: LogStream,
        server: Server,
        duties: MasterDuties,
        succession: Succession,
        adopt: Callable[[], Awaitable[None]],
        take_over: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """`broker_id` is the configured one. `adopt` creates topics for queues that only the log has. `take_over`
        fetches the progress of a slave that acted for this master."""
        self._config = config
        self._broker_id = broker_id
        self._addresses = addresses
        self._leadership = leadership
        self._stream = stream
        self._server = server
        self._duties = duties
        self._succession = succession
        self._adopt = adopt
        self._take_over = take_over
        self._periodic = PeriodicTasks()

    async def start(self, begin_requests: Callable[[], None]) -> None:
        """Lead, serve requests, and deliver. Raises `AddressError` for a port in use, and `StoreError`."""
        leadership, duties = self._leadership, self._duties
        # It succeeds another master at this start, not at an earlier one.
        if leadership.has_followed or (leadership.epoch or 0) > self._stream.epoch():
            await self._adopt()
        await self._listen()
        if self._take_over is not None:
            await self._take_over()
        await duties.recover()
        begin_requests()
        await duties.deliver()
        duties.repeat(self._config, self._periodic)
        self._succession.start(str(self._addresses))

    async def stop(self) -> None:
        """Stop the periodic duties. Idempotent."""
        await self._periodic.stop()

    async def _listen(self) -> None:
        """Listen for slaves in the current epoch."""
        leadership, stream, addresses = self._leadership, self._stream, self._addresses
        chosen = self._config.replication.listen_port
        addresses.replica_port = stream.listen(
            chosen or addresses.port + 1,
            takes_any_port=not chosen,
            broker_id=self._broker_id,
            epoch=next_epoch(stream.epoch(), MASTER_ID) if leadership.has_followed else leadership.epoch,
            server=self._server,
            in_sync=leadership.slaves_in_sync,
        )
        await leadership.lead()
