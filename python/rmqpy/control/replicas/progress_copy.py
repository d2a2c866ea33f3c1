"""Progress copy: the master's progress in delivering delayed and timed messages.

Owns progress that was received and not yet applied. Invariant: progress is applied only when the local log durably has
what the master's log had at that time, so that all messages delivered by then are here and none is lost if this broker
takes over. Progress never goes back: after acting for its master this broker is ahead. Threads: the event loop's; files
are written in a worker.
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

#: The interval of Apache's slaves for timer progress.
SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 10.0


class _Progress(NamedTuple):
    delays: DelayTable
    timers: bytes
    #: The end of the master's log after both replies.
    log_end: int


class ProgressCopy:
    what = "delivered delays"

    def __init__(self, delay_file: DelayFile, timer_file: Path, log_end: Callable[[], int], lag: Lag) -> None:
        """`log_end` returns the durable end of this broker's log. `lag` gets the end of the master's log."""
        self._delay_file = delay_file
        self._timer_file = timer_file
        self._log_end = log_end
        self._lag = lag
        self._pending: _Progress | None = None
        #: How often progress was applied.
        self.taken = 0

    async def copy(self, master: Peer) -> float:
        """Query the progress, or wait for the log to reach the pending one."""
        if self._pending is not None and not await self._take(self._pending):
            await self._end_of(master)
            return SECONDS
        delays, timers = await self._ask(master)
        self._pending = _Progress(delays, timers, await self._end_of(master))
        await self._take(self._pending)
        return SECONDS

    async def _take(self, progress: _Progress) -> bool:
        """Apply progress if the log has reached it; return whether it was applied."""
        if self._log_end() < progress.log_end:
            return False
        self._pending = None
        await self._delay_file.copy(progress.delays.offset_table, progress.delays.data_version)
        await asyncio.to_thread(_write_further, self._timer_file, progress.timers)
        self.taken += 1
        return True

    async def _ask(self, master: Peer) -> tuple[DelayTable, bytes]:
        delays = await master.call(GetAllDelayOffset(), timeout=ANSWER_SECONDS)
        try:
            timers = await master.call(GetTimerCheckPoint(), timeout=ANSWER_SECONDS)
        except Unsupported:
            # A release before 5.0.
            timers = b""
        return delays, timers

    async def _end_of(self, master: Peer) -> int:
        """Return the end of the master's log, and note it for the lag."""
        end = await log_end_of(master)
        self._lag.note(end)
        return end


def _write_further(path: Path, progress: bytes) -> None:
    if delivered_ms(progress) >= delivered_ms(read_progress(path)):
        write_progress(path, progress)
