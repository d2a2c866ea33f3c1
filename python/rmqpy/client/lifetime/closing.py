"""Closing in an event loop: started once, in a task that outlives the callers that wait for it.

Owns the closing of a client, and the rule that a client belongs to one event loop. A cancelled caller only stops
waiting. The task is cancelled when its loop ends, and then releases everything without waiting.
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
        """Whether closing has begun."""
        return self._task is not None

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Start closing unless it has begun; return its task."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(work())
        return self._task

    async def once(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start closing unless it has begun, and wait for its end. Raises errors of `work` to all waiting callers."""
        task = self.begin(work)
        if not task.done() and task.get_loop() is asyncio.get_running_loop():
            await asyncio.shield(task)


def in_loop(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    """Run `work` in the loop if it is running, otherwise here. Finalizers remove a loop's readers with it."""
    if loop.is_running():
        # The loop may have been closed meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(work)
            return
    work()


def is_elsewhere(own: asyncio.AbstractEventLoop | None) -> bool:
    """Return whether the caller runs in an event loop other than the client's own."""
    running = asyncio._get_running_loop()
    return own is not None and running is not None and running is not own


def check_loop(own: asyncio.AbstractEventLoop | None, noun: str) -> None:
    """Raise `RuntimeError` in an event loop other than the client's own."""
    if own is not None and is_elsewhere(own):
        state = "is closed" if own.is_closed() else "is a different one"
        raise RuntimeError(
            f"this {noun} belongs to the event loop it was first used in, which {state}: create one for each loop"
        )
