"""Linger: single sends of one topic wait briefly for each other and leave as one batch.

Owns which messages may share a batch and when it leaves: `linger` after its first message, or when it is full.
Producers without linger skip this code. `ThreadLinger` lets the first sender of a batch send it for all, `LoopLinger`
serves an event loop.

Invariant: each message gets its own result, or the error of its batch.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from rmqpy import errors
from rmqpy.message import Message, MessageQueue, SendResult
from rmqpy.protocol import names

#: A batch leaves immediately at this many messages, or bytes of bodies and properties.
COUNT_MAX: Final = 256
BYTES_MAX: Final = 64 << 10


def may_share(message: Message, queue: MessageQueue | None, timeout: object, alone_above: int | None) -> bool:
    """Return whether a message may share a batch. A message with a chosen queue, key, time, priority or lite topic
    leaves alone, and so does a compressed one."""
    limit = BYTES_MAX if alone_above is None else min(alone_above, BYTES_MAX)
    return (
        queue is None
        and timeout is None
        and message._is_plain
        and message.size <= limit
        and not message.topic.startswith(names.RETRY_PREFIX)
    )


class _Batch:
    """The messages of one batch."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.bytes = 0
        self.full = threading.Event()
        self.done = threading.Event()
        self.results: list[SendResult] = []
        self.error: Exception | None = None

    def has_room(self, message: Message) -> bool:
        return len(self.messages) < COUNT_MAX and self.bytes + message.size <= BYTES_MAX

    def put(self, message: Message) -> int:
        """Add a message; return its index."""
        self.messages.append(message)
        self.bytes += message.size
        return len(self.messages) - 1


class ThreadLinger:
    """Batches of sends from several threads."""

    def __init__(self, linger_s: float) -> None:
        self._linger_s = linger_s
        #: Reentrant, like the lock of `DoneCallbacks`.
        self._lock = threading.RLock()
        #: Open batches by topic.
        self._open: dict[str, _Batch] = {}

    def send(self, message: Message, send: Callable[[list[Message]], list[SendResult]]) -> SendResult:
        """Send a message in a batch, and wait for its result. `send` sends a batch; no reference to it is kept, so that
        an unclosed producer is finalized immediately."""
        with self._lock:
            batch = self._open.get(message.topic)
            if batch is not None and not batch.has_room(message):
                batch.full.set()
                batch = None
            is_first = batch is None
            if batch is None:
                batch = self._open[message.topic] = _Batch()
            at = batch.put(message)
        if is_first:
            self._lead(batch, message.topic, send)
        else:
            batch.done.wait()
        if batch.error is not None:
            raise batch.error
        return batch.results[at]

    def hurry(self, *, is_last: bool = False) -> None:
        """Send all open batches now. `is_last`: later messages do not linger."""
        with self._lock:
            if is_last:
                self._linger_s = 0.0
            for batch in self._open.values():
                batch.full.set()

    def _lead(self, batch: _Batch, topic: str, send: Callable[[list[Message]], list[SendResult]]) -> None:
        try:
            batch.full.wait(self._linger_s)
            self._close(batch, topic)
            batch.results = send(batch.messages)
        except Exception as error:
            batch.error = error
        except BaseException:
            # The exception is meant for this thread only; fail the batch so that the other threads stop waiting.
            self._close(batch, topic)
            batch.error = errors.SendError("the thread that sent this batch was interrupted", topic=topic)
            raise
        finally:
            batch.done.set()

    def _close(self, batch: _Batch, topic: str) -> None:
        with self._lock:
            if self._open.get(topic) is batch:
                del self._open[topic]


SendMany = Callable[[list[Message]], Awaitable[list[SendResult]]]


class _Gathering(NamedTuple):
    """A batch in an event loop: the waiting futures, its timer, and the function that sends it."""

    batch: _Batch
    futures: list[asyncio.Future[Any]]
    timer: asyncio.TimerHandle
    send: SendMany


class LoopLinger:
    """Batches of sends from several tasks of one event loop."""

    def __init__(
        self,
        linger_s: float,
        max_in_flight: int,
        *,
        is_waiting_when_full: bool,
        notify: Callable[[], object],
    ) -> None:
        """`notify` is called at the end of each batch."""
        self._linger_s = linger_s
        self._notify = notify
        self._max = max_in_flight
        self._is_waiting_when_full = is_waiting_when_full
        self._open: dict[str, _Gathering] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: Messages without a result, and the waiters for room.
        self.count = 0
        self._freed = asyncio.Event()

    async def put(self, message: Message, send: SendMany) -> asyncio.Future[SendResult]:
        """Add a message; its future has the result. Waits, or raises `BufferFull`, while too many are in flight."""
        while self.count >= self._max:
            if not self._is_waiting_when_full:
                raise errors.BufferFull(f"{self.count} messages are in flight")
            self._freed.clear()
            await self._freed.wait()
        loop = asyncio.get_running_loop()
        opened = self._open.get(message.topic)
        if opened is not None and not opened.batch.has_room(message):
            self._leave(message.topic)
            opened = None
        if opened is None:
            timer = loop.call_later(self._linger_s, self._leave, message.topic)
            opened = self._open[message.topic] = _Gathering(_Batch(), [], timer, send)
        opened.batch.put(message)
        future: asyncio.Future[SendResult] = loop.create_future()
        opened.futures.append(future)
        self.count += 1
        return future

    def hurry(self, *, is_last: bool = False) -> None:
        """Send all open batches now. `is_last`: later messages do not linger."""
        if is_last:
            self._linger_s = 0.0
        for topic in list(self._open):
            self._leave(topic)

    def _leave(self, topic: str) -> None:
        gathering = self._open.pop(topic)
        gathering.timer.cancel()
        task = asyncio.ensure_future(self._finish(gathering))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, gathering: _Gathering) -> None:
        futures = gathering.futures
        try:
            results = await gathering.send(gathering.batch.messages)
        except BaseException as error:
            failure = error
            if not isinstance(error, Exception):
                failure = errors.SendError("the task that sent this batch was cancelled")
            for future in futures:
                if not future.done():
                    future.set_exception(failure)
            if failure is not error:
                raise
        else:
            for future, result in zip(futures, results, strict=True):
                if not future.done():
                    future.set_result(result)
        finally:
            self.count -= len(futures)
            self._freed.set()
            self._notify()
