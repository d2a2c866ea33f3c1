"""Restart policy: stops and starts a broker's parts in the same process, and retries with backoff.

Invariant: at most one restart is in progress. Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from rmqpy.errors import RocketMQError

log = logging.getLogger(__name__)

#: The delay that lets the reply to the causing request leave, and the pauses between attempts.
ANSWER_SECONDS: Final = 0.1
RESTART_SECONDS_MIN: Final = 0.5
RESTART_SECONDS_MAX: Final = 10.0


class Restart(Protocol):
    """Starts a restart of the broker."""

    def __call__(self, cut: int | None = None) -> None:
        """Restart; `cut` is the position at which to cut the log before."""


class Restarts:
    """The restarts of one broker."""

    def __init__(
        self, name: str, start: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]
    ) -> None:
        #: The position at which to cut the log before the next start. `start` clears it after recovery.
        self.cut: int | None = None
        self._name = name
        self._start = start
        self._stop = stop
        self._task: asyncio.Task[None] | None = None
        self._is_ended = False

    def begin(self, cut: int | None = None) -> None:
        """Start a restart in the background."""
        self.cut = cut
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def allow(self) -> None:
        """Allow restarts from now on."""
        self._is_ended = False

    async def end(self) -> None:
        """Allow no more restarts, and wait for the one in progress."""
        self._is_ended = True
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        await asyncio.sleep(ANSWER_SECONDS)
        pause = RESTART_SECONDS_MIN
        while not self._is_ended:
            try:
                await self._stop()
                await self._start()
                return
            except Exception as error:
                log.error(
                    "broker %s: restart failed, retrying in %.1f s: %s",
                    self._name,
                    pause,
                    error,
                    exc_info=None if isinstance(error, RocketMQError | OSError) else error,
                )
                await self._stop()
                await asyncio.sleep(pause)
                pause = min(2 * pause, RESTART_SECONDS_MAX)
