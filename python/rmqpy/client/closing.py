"""Closing in an event loop: begun once, by a task of its own that outlives whoever waits for it.

Owns the one closing of a client, and the rule that a client belongs to one event loop. A caller that is cancelled only
stops waiting; the task is cancelled when its loop ends, and then gives back everything without waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any


class Closing:
    """The closing of one client."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the closing has begun."""
        return self._task is not None

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Begin it, unless it has begun; its task."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(work())
        return self._task

    async def once(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin it, unless it has begun, and wait for its end. Raises what `work` raises, to those that waited."""
        task = self.begin(work)
        if not task.done() and task.get_loop() is asyncio.get_running_loop():
            await asyncio.shield(task)


def in_loop(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    """Have `work` done in a loop that runs, else here: what finalizers do with a loop's readers."""
    if loop.is_running():
        # It may have ended meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(work)
            return
    work()


def is_elsewhere(own: asyncio.AbstractEventLoop | None) -> bool:
    """Whether the caller runs in another event loop than a client's own."""
    running = asyncio._get_running_loop()
    return own is not None and running is not None and running is not own


def check_loop(own: asyncio.AbstractEventLoop | None, noun: str) -> None:
    """Raise `RuntimeError` in another event loop than the client's own."""
    if own is not None and is_elsewhere(own):
        state = "has ended" if own.is_closed() else "is another one"
        raise RuntimeError(
            f"this {noun} belongs to the event loop it was first used in, which {state}: make one in each loop"
        )
