"""Loop thread: a thread with an event loop for one client.

Owns the thread and its coroutine. Invariant: a start that fails, or whose caller is interrupted, ends the coroutine, so
that nothing keeps running unnoticed. Any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from typing import Any, TypeVar

from rmqpy import errors

R = TypeVar("R")

#: Runs for the life of its client, and calls its argument when the client is ready.
Live = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]


class LoopThread:
    """A thread that runs one coroutine."""

    #: Set by the start.
    loop: asyncio.AbstractEventLoop

    def __init__(self, name: str, live: Live) -> None:
        #: Done when the coroutine has ended.
        self.ended: Future[None] = Future()
        self._live = live
        self._ready: Future[None] = Future()
        self._task: asyncio.Task[None] | None = None
        self._is_cancelled = False
        # A daemon thread: stuck handlers and unclosed clients must not prevent the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, and return when the coroutine is ready. Raises its error if it fails before."""
        try:
            self._thread.start()
            self._ready.result()
        except BaseException:
            # The thread may run already: an interrupt also ends the wait for its start.
            self.cancel()
            if self._thread.ident is None:
                self._end()
            raise

    def cancel(self) -> None:
        """Cancel the coroutine if it runs. Does not wait, so that finalizers may call it."""
        self._is_cancelled = True
        if self._task is not None:
            # The loop may have ended.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._task.cancel)

    def submit(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        """Run a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Callable[[], object]) -> None:
        """Have the loop call `work`, unless it has ended. Does not wait."""
        if self._task is not None:
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(work)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the coroutine has ended."""
        # The coroutine may be about to start.
        wait([self.ended], timeout_s)

    def _run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                asyncio.run(self._main())
        finally:
            self._end()

    def _end(self) -> None:
        # A start that was interrupted cannot tell whether its thread will run, and ends it, too.
        with suppress(InvalidStateError):
            self.ended.set_result(None)

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        try:
            if self._is_cancelled:
                raise asyncio.CancelledError
            await self._live(self._set_ready)
        except BaseException as error:
            if self._ready.done():
                raise
            if isinstance(error, asyncio.CancelledError):
                error = errors.ClosedError("the consumer was closed while it was starting")
            self._ready.set_exception(error)

    def _set_ready(self) -> None:
        self._ready.set_result(None)
