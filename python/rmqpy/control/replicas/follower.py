"""Follower: keeps what a slave copies as its master has it.

Owns one task for each kind of copy, and what is known of the master by asking it: whether it answers. Invariant: a
failure is told once, and every attempt has an end; the copies of a slave stay as they are while its master is away.
Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.errors import ConnectError, RequestTimeout, RocketMQError
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

#: Pause after a failure.
RETRY_SECONDS: Final = 1.0
#: For each kind, before the slave leads.
FINISH_SECONDS: Final = 1.0


class Copy(Protocol):
    """One kind of what is copied."""

    @property
    def what(self) -> str:
        """As the log calls it."""

    async def copy(self, master: Peer) -> float:
        """Bring the copy up to date; the seconds until the next time. Raises `RocketMQError`."""


class Follower:
    """The copies of a slave."""

    def __init__(
        self,
        master: KnownMaster,
        peer: Callable[[str], Peer],
        copies: Sequence[Copy],
        on_master: Callable[[bool], None],
    ) -> None:
        """`on_master` is called when the master begins to answer, and when it does not any more."""
        self._master = master
        self._peer = peer
        self._copies = copies
        self._on_master = on_master
        self._faults: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.has_master = False

    def start(self) -> None:
        """Begin on the running loop."""
        self._tasks = [asyncio.get_running_loop().create_task(self._repeat(copy)) for copy in self._copies]

    async def stop(self) -> None:
        """End all copies. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def finish(self, copies: Sequence[Copy]) -> None:
        """End all copies, and bring some up to date once more, where the master still answers: this broker leads from
        now on."""
        await self.stop()
        if not self.has_master:
            return
        peer = self._peer(await self._master.wait())
        for copy in copies:
            try:
                await asyncio.wait_for(copy.copy(peer), FINISH_SECONDS)
            except (RocketMQError, OSError, TimeoutError) as error:
                log.warning("%s of the master could not be copied once more: %s", copy.what, error)

    @property
    def fault(self) -> str | None:
        """What cannot be copied, and why; None where all is well."""
        return next((f"{what} of the master: {fault}" for what, fault in self._faults.items()), None)

    async def _repeat(self, copy: Copy) -> None:
        while True:
            address = await self._master.wait()
            try:
                pause = await copy.copy(self._peer(address))
            except (RocketMQError, OSError) as error:
                self._failed(copy.what, str(error), is_away=isinstance(error, ConnectError | RequestTimeout))
                pause = RETRY_SECONDS
            except Exception as error:
                log.exception("%s of the master cannot be copied", copy.what)
                self._failed(copy.what, f"{type(error).__name__}: {error}", is_away=False)
                pause = RETRY_SECONDS
            else:
                if self._faults.pop(copy.what, None) is not None:
                    log.info("%s of the master are copied again", copy.what)
                self._answers(True)
            await asyncio.sleep(pause)

    def _failed(self, what: str, fault: str, *, is_away: bool) -> None:
        if what not in self._faults:
            log.warning("%s of the master cannot be copied, trying again: %s", what, fault)
        self._faults[what] = fault
        if is_away:
            self._answers(False)

    def _answers(self, has_master: bool) -> None:
        if has_master != self.has_master:
            self.has_master = has_master
            self._on_master(has_master)
