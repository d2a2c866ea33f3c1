"""Periodic tasks of a broker. Threads: the event loop's."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


class PeriodicTasks:
    """Tasks that repeat at intervals. A failure is logged and ends nothing."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, seconds: float, work: Callable[[], Awaitable[None] | None]) -> None:
        """Start a task; its first run follows one interval later."""
        self._tasks.append(asyncio.get_running_loop().create_task(_repeat(seconds, work)))

    async def stop(self) -> None:
        """Cancel all tasks."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _repeat(seconds: float, work: Callable[[], Awaitable[None] | None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            result = work()
            if inspect.isawaitable(result):
                await result
        except Exception:
            log.exception("%s failed, retrying", getattr(work, "__qualname__", work))
