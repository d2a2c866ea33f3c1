"""Slave role: follows the master's log, and copies its tables and progress."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from rmqpy.control.replicas.acting import ActingMaster
from rmqpy.control.replicas.follower import Copy, Follower
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.leadership import Leadership
from rmqpy.control.replicas.log_stream import LogStream
from rmqpy.control.startup.restart import Restart
from rmqpy.remoting.client import Peer


class SlaveRole:
    """The parts of a following broker."""

    def __init__(
        self,
        name: str,
        leadership: Leadership,
        master: KnownMaster,
        peer: Callable[[str], Peer],
        *,
        stream: LogStream,
        table_copies: Sequence[Copy],
        progress_copies: Sequence[Copy],
        acting: ActingMaster | None,
        on_master: Callable[[bool], None],
        restart: Restart,
    ) -> None:
        """`name` is the broker's. Only `progress_copies` are updated before a promotion, because tables are copied as
        they change. `on_master` is called when the master starts or stops answering."""
        self._name = name
        self._leadership = leadership
        self._master = master
        self._peer = peer
        self._stream = stream
        self._progress_copies = progress_copies
        self._acting = acting
        self._restart = restart
        self._follower = Follower(master, peer, (*table_copies, *progress_copies), on_master)
        self._started = contextlib.AsyncExitStack()

    async def start(self, begin_requests: Callable[[], None]) -> None:
        """Follow the master, and serve requests. Raises `StoreError`."""
        await self._leadership.follow()
        alignment = self._stream.follow(
            self._name, self._master, self._peer, self._restart, confirmed=self._leadership.confirmed
        )
        self._started.push_async_callback(alignment.stop)
        begin_requests()
        self._started.push_async_callback(self._follower.stop)
        self._follower.start()
        if self._acting is not None:
            self._started.push_async_callback(self._acting.stop)

    async def stop(self) -> None:
        """Undo `start`, last step first. Idempotent."""
        await self._started.aclose()

    async def finish_copies(self) -> None:
        """Copy the progress of delivery and consumers a last time before leading."""
        await self._follower.finish(self._progress_copies)
