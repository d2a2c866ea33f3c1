"""Pending timed messages, for slaves and operators. On the event loop; a worker reads the timer log."""

from __future__ import annotations

import asyncio

from rmqpy._native import DueMessages
from rmqpy.control.store.topic_counts import CountFile
from rmqpy.errors import StoreError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.timers import DUE_WITHIN_S, GetTimerMetrics, TimerMetricsTable
from rmqpy.remoting.server import Refused, handles


class TimerHandlers:
    """Queries of pending timed messages."""

    def __init__(self, due: DueMessages, counts: CountFile[TimerMetricsTable]) -> None:
        self._due = due
        self._counts = counts

    @handles(GetTimerMetrics)
    async def metrics(self, ask: GetTimerMetrics) -> TimerMetricsTable:
        try:
            table = await self._counts.now()
            if ask.is_distributed:
                within = await asyncio.to_thread(self._due.due_within, DUE_WITHIN_S)
                table.timing_distribution.update(within)
        except StoreError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return table
