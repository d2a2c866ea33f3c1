"""Follower: keeps a slave's copies equal to its master's tables.

Owns one task for each kind of copy, and whether the master answers. Invariant: a failure is logged once, and every
attempt is bounded; copies stay unchanged while the master is unreachable. The master answers once a copy succeeds that
began after the last failure to reach it. When another broker is the master, every copy turns to it without a pause.
Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rmqpy.control.replicas.followed_peer import FollowedPeer, MasterMoved
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.errors import ConnectError, RequestTimeout, RocketMQError
from rmqpy.remoting.client import Peer
from rmqpy.remoting.waiting import wait_at_most

log = logging.getLogger(__name__)

#: Pause after a failure; a shorter one after each of the first, because an elected master restarts its parts.
RETRY_SECONDS: Final = 1.0
RETRY_SOON_SECONDS: Final = 0.1
RETRIES_SOON: Final = 10
#: The time for the last copy of each kind, before the slave leads.
FINISH_SECONDS: Final = 1.0


class Copy(Protocol):
    """One kind of copied data."""

    @property
    def what(self) -> str:
        """The name in log lines."""

    async def copy(self, master: Peer) -> float:
        """Update the copy; return the seconds until the next run. Asks the master at least once, so that a return shows
        that it answers. Raises `RocketMQError`."""


class Follower:
    """The copies of a slave."""

    def __init__(
        self,
        master: KnownMaster,
        peer: Callable[[str], Peer],
        copies: Sequence[Copy],
        on_master: Callable[[bool], None],
    ) -> None:
        """`on_master` is called when the master starts or stops answering."""
        self._master = master
        self._peer = peer
        self._copies = copies
        self._on_master = on_master
        self._faults: dict[str, str] = {}
        self._times_away = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.has_master = False

    def start(self) -> None:
        """Start on the running loop."""
        self._tasks = [asyncio.get_running_loop().create_task(self._repeat(copy)) for copy in self._copies]

    async def stop(self) -> None:
        """Stop all copies. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def finish(self, copies: Sequence[Copy]) -> None:
        """Stop all copies, and update some of them a last time if the master answers, because this broker leads from
        now on."""
        await self.stop()
        if not self.has_master:
            return
        peer = self._peer(await self._master.wait())
        for copy in copies:
            try:
                await asyncio.wait_for(copy.copy(peer), FINISH_SECONDS)
            except (RocketMQError, OSError, TimeoutError) as error:
                log.warning("cannot copy %s of the master a last time: %s", copy.what, error)

    @property
    def fault(self) -> str | None:
        """The first failing copy and its error; `None` without failures."""
        return next((f"{what} of the master: {fault}" for what, fault in self._faults.items()), None)

    async def _repeat(self, copy: Copy) -> None:
        failures = 0
        while True:
            address, moved = await self._master.wait(), self._master.moved
            times_away = self._times_away
            try:
                pause = await copy.copy(FollowedPeer(self._peer, address, moved))
            except MasterMoved:
                failures, pause = 0, 0.0
            except (RocketMQError, OSError) as error:
                self._failed(copy.what, str(error), is_away=isinstance(error, ConnectError | RequestTimeout))
                failures, pause = failures + 1, _pause(failures)
            except Exception as error:
                log.exception("cannot copy %s of the master", copy.what)
                self._failed(copy.what, f"{type(error).__name__}: {error}", is_away=False)
                pause = RETRY_SECONDS
            else:
                failures = 0
                if self._faults.pop(copy.what, None) is not None:
                    log.info("copying %s of the master again", copy.what)
                if times_away == self._times_away:
                    self._answers(True)
            await wait_at_most(moved, pause)

    def _failed(self, what: str, fault: str, *, is_away: bool) -> None:
        if what not in self._faults:
            log.warning("cannot copy %s of the master, retrying: %s", what, fault)
        self._faults[what] = fault
        if is_away:
            self._times_away += 1
            self._answers(False)

    def _answers(self, has_master: bool) -> None:
        if has_master != self.has_master:
            self.has_master = has_master
            self._on_master(has_master)


def _pause(failures: int) -> float:
    """Return the pause after a failure that follows this many others."""
    return min(RETRY_SOON_SECONDS, RETRY_SECONDS) if failures < RETRIES_SOON else RETRY_SECONDS
