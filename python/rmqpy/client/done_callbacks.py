"""Callbacks of sends: the delivery thread calls each once when its send ends.

Owns the callbacks of one producer. A send without callbacks costs nothing here: only a callback gives its end a token
and an announcement. Invariant: each callback is called once, at the latest when its producer is closed. Any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from rmqpy._native import SendFuture
from rmqpy.message import SendResult

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

log = logging.getLogger(__name__)

DoneCallback = Callable[[SendFuture], object]


@dataclass(slots=True)
class _Waiting:
    """The callbacks of one send."""

    future: SendFuture | None = None
    callbacks: list[DoneCallback] = field(default_factory=list)


class DoneCallbacks:
    """The callbacks of one producer's sends."""

    def __init__(self) -> None:
        #: Reentrant, because a finalizer or a signal handler may send.
        self._lock = threading.RLock()
        self._tokens = count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._is_closed = False

    def expect(self, callback: DoneCallback) -> int:
        """Register a callback; return the token to start its send with. `started` or `cancel` follows."""
        with self._lock:
            token = next(self._tokens)
            self._waiting[token] = _Waiting(callbacks=[callback])
        return token

    def started(self, token: int, future: SendFuture) -> None:
        """Note the future of a send that has started."""
        with self._lock:
            if waiting := self._waiting.get(token):
                waiting.future = future

    def cancel(self, token: int) -> None:
        """Forget the token of a send that did not start."""
        with self._lock:
            self._waiting.pop(token, None)

    def add(self, future: SendFuture, callback: DoneCallback) -> None:
        """Call `callback` when the send ends; immediately, in this thread, if it has ended."""
        with self._lock:
            if self._is_closed:
                # No delivery thread is left to call the callback.
                future._abandon()
            token = future._announce_end(next(self._tokens))
            if token is not None:
                waiting = self._waiting.setdefault(token, _Waiting())
                waiting.future = future
                waiting.callbacks.append(callback)
        if token is None:
            _call((callback,), future, Exception)

    def call(self, future: SendFuture) -> None:
        """Run the callbacks of a send that has ended."""
        token = future._end_token
        if token is not None:
            with self._lock:
                waiting = self._waiting.pop(token, None)
            if waiting is not None:
                # An exception must not end the thread that runs all callbacks.
                _call(waiting.callbacks, waiting.future or future, BaseException)

    def close(self) -> None:
        """End the sends that are still pending: no thread decides about their retries any more."""
        with self._lock:
            self._is_closed = True
            left, self._waiting = self._waiting, {}
        for waiting in left.values():
            if waiting.future is not None:
                waiting.future._abandon()
                _call(waiting.callbacks, waiting.future, BaseException)


def as_future(sent: SendFuture) -> Future[SendResult]:
    """Return a future of `concurrent.futures` that completes with the send."""
    from concurrent.futures import Future

    future: Future[SendResult] = Future()
    # A send in flight cannot be cancelled.
    future.set_running_or_notify_cancel()

    def end(sent: SendFuture) -> None:
        try:
            result = sent.result()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    sent.add_done_callback(end)
    return future


async def awaited(sent: SendFuture) -> SendResult:
    """Await the result in the running event loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def tell(_: SendFuture) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(_end, ended)

    sent.add_done_callback(tell)
    await ended
    return sent.result()


def _end(ended: asyncio.Future[None]) -> None:
    # A cancelled future has no waiter.
    if not ended.done():
        ended.set_result(None)


def _call(callbacks: Iterable[DoneCallback], future: SendFuture, caught: type[BaseException]) -> None:
    for callback in callbacks:
        try:
            callback(future)
        except caught:
            log.exception("the callback of a send to %s failed", future.topic)
