"""Linger: single sends of one topic that wait a moment for each other and travel as one batch.

Owns which messages may share a batch and when it leaves: `linger` after its first message, or as soon as it is full.
Producers that do not linger have none of this. One form for threads, where the first sender of a batch sends it for
all, and one for an event loop.

Invariant: each message that was put in gets its own result, or the error of its batch.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from rmqpy import errors
from rmqpy.message import Message, MessageQueue, SendResult
from rmqpy.protocol import names

#: A batch with so many messages, or bytes of bodies and properties, leaves at once.
COUNT_MAX: Final = 256
BYTES_MAX: Final = 64 << 10


def may_share(message: Message, queue: MessageQueue | None, timeout: object, alone_above: int | None) -> bool:
    """Whether a message may share a batch: what has a queue, a key, a time or a priority of its own goes alone, and so
    does what is compressed."""
    limit = BYTES_MAX if alone_above is None else min(alone_above, BYTES_MAX)
    return (
        queue is None
        and timeout is None
        and message.sharding_key is None
        and message.deliver_at is None
        and message.deliver_after is None
        and message.delay_level is None
        and message.priority is None
        and message.size <= limit
        and not message.topic.startswith(names.RETRY_PREFIX)
    )


class _Batch:
    """Messages that wait for each other."""

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
        """Its place."""
        self.messages.append(message)
        self.bytes += message.size
        return len(self.messages) - 1


class ThreadLinger:
    """Sends that wait for those of other threads."""

    def __init__(self, linger_s: float) -> None:
        self._linger_s = linger_s
        #: As that of `DoneCallbacks`.
        self._lock = threading.RLock()
        #: By topic.
        self._open: dict[str, _Batch] = {}

    def send(self, message: Message, send: Callable[[list[Message]], list[SendResult]]) -> SendResult:
        """Send it with others, and wait for its result. `send` sends a batch; it is not kept, so that a producer that
        is left open goes at once."""
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
        """Let all that wait leave now. `is_last`: and nothing waits any more."""
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
            # Meant for this thread alone; the others must not wait for ever.
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
    """A batch in an event loop: who waits for it, the end of its time, and the way it goes then."""

    batch: _Batch
    futures: list[asyncio.Future[Any]]
    timer: asyncio.TimerHandle
    send: SendMany


class LoopLinger:
    """Sends that wait for those of other tasks. For one event loop."""

    def __init__(
        self,
        linger_s: float,
        max_in_flight: int,
        *,
        is_waiting_when_full: bool,
        notify: Callable[[], object],
    ) -> None:
        """`notify` is called when a batch has ended."""
        self._linger_s = linger_s
        self._notify = notify
        self._max = max_in_flight
        self._is_waiting_when_full = is_waiting_when_full
        self._open: dict[str, _Gathering] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: Messages that have no result yet, and waiters for one less.
        self.count = 0
        self._freed = asyncio.Event()

    async def put(self, message: Message, send: SendMany) -> asyncio.Future[SendResult]:
        """Put it with others; the future has its result. Waits, or raises `BufferFull`, while there are too many."""
        while self.count >= self._max:
            if not self._is_waiting_when_full:
                raise errors.BufferFull(f"{self.count} messages are on their way")
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
        """As of `ThreadLinger`."""
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
