"""The copy of how far the master has delivered delayed and timed messages.

Owns the progress that was told and is not taken over yet. Invariant: progress is taken over only when this log has
on its disk what the master's had when it was told: the messages that were delivered by then are here, too, and none
is lost where this broker goes on. Nor does it go back: where this broker has acted for its master, that has yet to be
told. Threads: the event loop's; files are written in a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from rmqpy.control.replicas.lag import Lag
from rmqpy.control.replicas.log_position import log_end_of
from rmqpy.control.store.delay_offsets import DelayFile
from rmqpy.control.store.timer_progress import delivered_ms, read_progress, write_progress
from rmqpy.errors import Unsupported
from rmqpy.protocol.requests.replicas import DelayTable, GetAllDelayOffset, GetTimerCheckPoint
from rmqpy.remoting.client import Peer

#: As Apache's slaves ask for the progress of timers.
SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 10.0


class _Told(NamedTuple):
    delays: DelayTable
    timers: bytes
    #: End of the master's log after both were told.
    log_end: int


class ProgressCopy:
    """The copy of the progress."""

    what = "delivered delays"

    def __init__(self, delay_file: DelayFile, timer_file: Path, log_end: Callable[[], int], lag: Lag) -> None:
        """`log_end`: of this broker's log, as far as it is on the disk. `lag` is told where the master's ends."""
        self._delay_file = delay_file
        self._timer_file = timer_file
        self._log_end = log_end
        self._lag = lag
        self._told: _Told | None = None

    async def copy(self, master: Peer) -> float:
        """Ask for the progress, or wait for the log to catch up with what was told."""
        if self._told is not None and not await self._take(self._told):
            await self._end_of(master)
            return SECONDS
        delays, timers = await self._ask(master)
        self._told = _Told(delays, timers, await self._end_of(master))
        await self._take(self._told)
        return SECONDS

    async def _take(self, told: _Told) -> bool:
        """Take it over, if the log has got there."""
        if self._log_end() < told.log_end:
            return False
        self._told = None
        await self._delay_file.copy(told.delays.offset_table, told.delays.data_version)
        await asyncio.to_thread(_write_further, self._timer_file, told.timers)
        return True

    async def _ask(self, master: Peer) -> tuple[DelayTable, bytes]:
        delays = await master.call(GetAllDelayOffset(), timeout=ANSWER_SECONDS)
        try:
            timers = await master.call(GetTimerCheckPoint(), timeout=ANSWER_SECONDS)
        except Unsupported:
            # It is of a release before 5.0.
            timers = b""
        return delays, timers

    async def _end_of(self, master: Peer) -> int:
        """Where the master's log ends."""
        end = await log_end_of(master)
        self._lag.note(end)
        return end


def _write_further(path: Path, told: bytes) -> None:
    if delivered_ms(told) >= delivered_ms(read_progress(path)):
        write_progress(path, told)
