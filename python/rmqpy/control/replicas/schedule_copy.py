"""Schedule copy: the master's schedules and their progress. Threads: the event loop's.

Invariant: the copied progress never claims a message that this broker's log lacks, so that after a promotion none is
missing; it may be behind, because the index has what the log has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from rmqpy.control.schedules.table import SCHEDULES_MAX, ProgressFile, Schedules
from rmqpy.errors import DecodeError, Unsupported
from rmqpy.protocol.requests.schedules import GetSchedules
from rmqpy.remoting.client import Peer

SECONDS: Final = 3.0
#: The interval at a master without schedules, such as Apache's.
APACHE_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 10.0
#: How often, and at which interval, the copy checks whether the log has arrived.
LOOKS: Final = 20
LOOK_SECONDS: Final = 0.1


class ScheduleCopy:
    """The copy of the schedules."""

    what = "schedules"

    def __init__(self, schedules: Schedules, progress: ProgressFile, durable_end: Callable[[], int]) -> None:
        self._schedules = schedules
        self._progress = progress
        self._durable_end = durable_end

    async def copy(self, master: Peer) -> float:
        """Ask for the schedules, and take them over. Raises `RocketMQError`."""
        try:
            found = await master.call(GetSchedules(is_brief=True), timeout=ANSWER_SECONDS)
        except Unsupported:
            return APACHE_SECONDS
        if max(len(found.states), len(found.armed_ms)) > 2 * SCHEDULES_MAX:
            raise DecodeError(
                f"{master.address} has {len(found.states)} schedules, more than {SCHEDULES_MAX}"
            )
        await self._schedules.copy_all({each.schedule.name: each.schedule for each in found.states})
        for _ in range(LOOKS):
            if self._durable_end() >= found.log_end:
                await self._progress.copy(found.armed_ms)
                break
            await asyncio.sleep(LOOK_SECONDS)
        return SECONDS
