"""`AsyncProducer`: sends from an event loop.

Outcomes arrive in bursts, with one wake-up of the loop for each; failed attempts are retried in the loop's thread.

Invariant: each send ends once, stored or given up, within its timeout, whether or not it is still awaited.
"""

# ruff: noqa: ASYNC109 - a timeout bounds the send, not the wait
from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from rmqpy import errors
from rmqpy._native import NotSent, SendFuture
from rmqpy.client import outcome
from rmqpy.client.lifetime.closing import Closing, check_loop, in_loop, is_elsewhere
from rmqpy.client.producer.accepted import Accepted
from rmqpy.client.producer.linger import LoopLinger, may_share
from rmqpy.client.producer.message_arguments import chosen_codec, complete
from rmqpy.client.producer.producer_base import ProducerBase
from rmqpy.client.producer.transactions.transaction import AsyncTransaction
from rmqpy.config.client import seconds
from rmqpy.message import Body, Message, MessageFields, MessageQueue, ReceivedMessage, SendResult
from rmqpy.remoting.client import BURST_COUNT_MAX, LoopCaller

if TYPE_CHECKING:
    from rmqpy.client.codecs.codec import Codec
    from rmqpy.client.producer.typed import AsyncTypedTopic
    from rmqpy.client.trace.dispatcher import OpenSend

T = TypeVar("T")
V = TypeVar("V")


class AsyncProducer(ProducerBase):
    """Sends messages from an event loop: `Producer` with coroutines, and the same promises.

    ::

        async with rmqpy.AsyncProducer("127.0.0.1:9876") as producer:
            await producer.send("orders", b"...", tag="paid")

    For one event loop, the one it is first used in. Cancelling an awaited `send` ends the wait, not the send.
    """

    _IS_BLOCKING = False

    def _begin(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Looks at pending sends.
        self._watching: asyncio.TimerHandle | None = None
        # Brokers may send checks before the first send.
        with suppress(RuntimeError):
            self._transactions.check_in(asyncio.get_running_loop())
        self._freed = asyncio.Event()
        self._accepted = Accepted(self._freed.set)
        self._closing = Closing()
        self._linger = LoopLinger(
            self._linger_s,
            self._in_flight_max,
            is_waiting_when_full=self._is_waiting_when_full,
            notify=self._freed.set,
        )
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._token = 0
        #: Messages that interceptors observe, by the token of their send.
        self._watched: dict[int, Message] = {}
        #: Keeps sends in order while the first of them waits for room.
        self._line = asyncio.Lock()
        #: Sends that wait for or hold `_line`, because the lock does not count its waiters.
        self._in_line = 0

    async def send(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        timeout: float | timedelta | None = None,
        dedup: str | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """As `Producer.send`."""
        if dedup is not None:
            if queue is not None:
                raise ValueError("dedup determines the queue: leave out queue")
            if fields:
                message, body = complete(message, body, fields)
            return await self._send_once(message, body, dedup, timeout)
        return await (await self.submit(message, body, queue=queue, timeout=timeout, **fields))

    async def submit(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        timeout: float | timedelta | None = None,
        **fields: Unpack[MessageFields],
    ) -> asyncio.Future[SendResult]:
        """Start sending; the future has the result. Waits, or raises `BufferFull`, only while the in-flight budget is
        used up."""
        if fields:
            message, body = complete(message, body, fields)
        if not (self._interceptors or self._linger_s > 0):
            if queue is None and timeout is None and self._sends_at_once and not self.is_closed:
                started = self._at_once(message, body)
                if started is not None:
                    return started
            return await self._submit(partial(self._send, message, body, queue, timeout))
        message = self._intercept(message, body)
        try:
            if self._linger_s > 0 and may_share(message, queue, timeout, self._compress_above):
                return await self._gather(message)
            return await self._submit(partial(self._send, message, None, queue, timeout), message)
        except BaseException as error:
            self._tell(message, error)
            raise

    send_oneway = ProducerBase._send_oneway
    send_batch = ProducerBase._send_batch
    request = ProducerBase._request
    queues = ProducerBase._queues
    recall = ProducerBase._recall

    async def submit_request(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        timeout: float | timedelta = 3.0,
        **fields: Unpack[MessageFields],
    ) -> asyncio.Future[ReceivedMessage]:
        """Start a request; the future has the reply. Arguments and errors as of `request`.

        Waits, or raises `BufferFull`, only while `max_in_flight` requests wait for their replies. Cancelling the future
        ends the wait.
        """
        ready = await self._requests.prepare(self, message, body, queue, timeout, fields)
        task = self._caller.loop.create_task(self._requests.finish(self, ready))
        # Also runs if the task is cancelled before it starts.
        task.add_done_callback(lambda _: ready.open.close())
        return task

    def transaction(
        self, message: Message | str, body: Body | None = None, /, **fields: Unpack[MessageFields]
    ) -> AsyncTransaction:
        """Like `Producer.transaction`, for `async with`. A `transaction_checker` that is a coroutine function runs
        in the producer's event loop, any other on its own thread."""
        return AsyncTransaction(
            self._transactions.message(self, message, body, fields),
            partial(self._transactions.begin, self),
            partial(self._transactions.end, self),
        )

    def typed(self, topic: str, kind: type[V], *, codec: Codec | None = None) -> AsyncTypedTopic[V]:
        """As `Producer.typed`."""
        from rmqpy.client.producer.typed import AsyncTypedTopic

        return AsyncTypedTopic(self, topic, chosen_codec(topic, kind, codec))

    async def flush(self, timeout: float | timedelta | None = None) -> None:
        """As `Producer.flush`."""
        self._check_open()
        self._linger.hurry()
        if not await self._drained(timeout):
            raise errors.RequestTimeout(f"{self._in_flight} messages are still in flight")

    async def close(self, timeout: float | timedelta | None = 5.0) -> None:
        """As `Producer.close`."""
        if self._is_forked:
            self.is_closed = True
            return
        if not self.is_closed:
            if is_elsewhere(self._loop):
                if self._loop is not None and not self._loop.is_closed():
                    check_loop(self._loop, self._NOUN)
                self.is_closed = True
                self._release()
                return
            self.is_closed = True
            self._closing.begin(partial(self._end, timeout))
        if self._closing.has_begun:
            await self._closing.once(partial(self._end, timeout))

    async def _end(self, timeout: float | timedelta | None) -> None:
        try:
            self._linger.hurry(is_last=True)
            await self._drained(timeout)
            self._has_ended = True
            # One-way sends may need a moment to leave.
            await asyncio.to_thread(self._leave)
        finally:
            # Also runs if this task is cancelled because its loop ends.
            self._has_ended = True
            self._leave()
            # Wake the senders that wait for room, so that they raise.
            self._freed.set()
            if self._loop is not None:
                # Closing the connections has failed the remaining sends.
                while self._drain():
                    pass
                self._loop.remove_reader(self._completions.fileno())
                self._caller.close()
            self._completions.close()
        if self._trace is not None:
            await asyncio.to_thread(self._close_trace)

    @property
    def _in_flight(self) -> int:
        """The number of accepted sends that have not ended."""
        # A lingering batch counts as one pending send.
        return self._accepted.count + max(len(self._pending), self._linger.count)

    async def _drained(self, timeout: float | timedelta | None) -> bool:
        """As `Producer._drained`."""
        try:
            async with asyncio.timeout(None if timeout is None else seconds(timeout)):
                while self._in_flight:
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            return False
        return True

    def _release(self) -> None:
        super()._release()
        if self._loop is None:
            return
        loop, pending, completions, caller = self._loop, self._pending, self._completions, self._caller

        def let_go() -> None:
            if not loop.is_closed():
                loop.remove_reader(completions.fileno())
                for future in pending.values():
                    if not future.done():
                        future.set_exception(
                            errors.ClosedError("the producer was garbage-collected before it was closed")
                        )
            caller.close()

        in_loop(loop, let_go)

    def _check_open(self) -> None:
        super()._check_open()
        check_loop(self._loop, self._NOUN)

    async def __aenter__(self) -> Self:
        if self._loop is None:
            # For checks of a producer that was created outside of a loop.
            self._transactions.check_in(asyncio.get_running_loop())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @staticmethod
    def _open_send() -> OpenSend:
        # A thread sends traces for both kinds of producer.
        from rmqpy.client.producer.producer import open_send

        return open_send

    @cached_property
    def _caller(self) -> LoopCaller:
        # Called in the loop that first uses the producer.
        self._loop = asyncio.get_running_loop()
        # A weak reference, so that the loop does not keep a dropped producer alive.
        self._loop.add_reader(self._completions.fileno(), _drain, weakref.ref(self))
        self._transactions.check_in(self._loop)
        return LoopCaller(self._cluster.client)

    async def _gather(self, message: Message) -> asyncio.Future[SendResult]:
        self._check_open()
        with self._accepted:
            return await self._linger.put(message, self._send_together)

    def _at_once(self, message: Message | str, body: Body | None) -> asyncio.Future[Any] | None:
        """Start a plain send in one call if no other send waits for room, otherwise return `None`."""
        loop = self._caller.loop
        if loop is not asyncio.get_running_loop():
            self._check_open()
        if self._in_line:
            return None
        self._token += 1
        token = self._token
        if isinstance(self._sender.send(message, body, announce="always", token=token), NotSent):
            return None
        self._pending[token] = pending = loop.create_future()
        if self._watching is None:
            self._watch(loop, self._silent.wait_s)
        return pending

    async def _submit(
        self, start: Callable[..., Awaitable[SendFuture]], watched: Message | None = None
    ) -> asyncio.Future[Any]:
        """Return the future of a send. `start` starts it with `announce` and `token`."""
        loop = self._caller.loop
        self._token += 1
        token = self._token
        await start(announce="always", token=token)
        if watched is not None:
            self._watched[token] = watched
        self._pending[token] = pending = loop.create_future()
        if self._watching is None:
            self._watch(loop, self._silent.wait_s)
        return pending

    def _watch(self, loop: asyncio.AbstractEventLoop, after: float) -> None:
        # A weak reference, as for the completions.
        self._watching = loop.call_later(after, _look_around, weakref.ref(self))

    def _look_around(self) -> None:
        self._watching = None
        if self._pending:
            self._watch(self._caller.loop, self._silent.look(self._caller))

    async def _stored(self, topic: str, send: Callable[..., SendFuture | NotSent]) -> list[SendResult]:
        async def start(**announced: Any) -> SendFuture:
            return await self._start(topic, partial(send, **announced))

        stored: list[SendResult] | SendResult = await (await self._submit(start))
        return stored if isinstance(stored, list) else [stored]

    async def _in_turn(self, send: Callable[[], T | NotSent]) -> T | NotSent:
        self._in_line += 1
        try:
            async with self._line:
                return await self._with_room(send)
        finally:
            self._in_line -= 1

    async def _with_room(self, send: Callable[[], T | NotSent]) -> T | NotSent:
        while True:
            if self._has_ended:
                raise errors.ClosedError("the producer was closed before there was room for the message")
            sent = send()
            if not (isinstance(sent, NotSent) and sent.reason == "no_room" and self._is_waiting_when_full):
                return sent
            while not self._sender.has_room(sent.bytes) and not self._has_ended:
                self._freed.clear()
                await self._freed.wait()

    def _drain(self) -> bool:
        """Process completed sends; return whether there were any."""
        completed = self._completions.take(BURST_COUNT_MAX)
        for token, future in completed:
            self._completed(token, future)
        return bool(completed)

    def _completed(self, token: int, future: SendFuture, *, has_paused: bool = False) -> None:
        if not future.done() and (pause := self._decide(future, has_paused=has_paused)):
            self._caller.loop.call_later(pause, partial(self._completed, token, future, has_paused=True))
        elif future.done():
            self._finish(token, future)

    def _finish(self, token: int, future: SendFuture) -> None:
        pending = self._pending.pop(token, None)
        if self._watched and (watched := self._watched.pop(token, None)) is not None:
            self._tell(watched, outcome.of(future))
        self._freed.set()
        if pending is None or pending.done():
            return
        try:
            results = future.results()
        except errors.RocketMQError as error:
            pending.set_exception(error)
        else:
            pending.set_result(results if future._is_batch else results[0])


def _drain(producer: weakref.ref[AsyncProducer]) -> None:
    if (alive := producer()) is not None:
        alive._drain()


def _look_around(producer: weakref.ref[AsyncProducer]) -> None:
    if (alive := producer()) is not None:
        alive._look_around()
