"""`AsyncProducer`: sending from an event loop.

Outcomes come up in bursts, one wake-up of the loop for each; failed attempts are decided there, in the loop's thread.

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
from typing import Any, Self, TypeVar, Unpack

from rmqpy import errors
from rmqpy._native import NotSent, SendFuture
from rmqpy.client import outcome
from rmqpy.client.accepted import Accepted
from rmqpy.client.closing import Closing, check_loop, in_loop, is_elsewhere
from rmqpy.client.linger import LoopLinger, may_share
from rmqpy.client.message_arguments import complete
from rmqpy.client.requesting import RequestingProducer
from rmqpy.client.transactions import AsyncTransaction
from rmqpy.config.client import seconds
from rmqpy.message import Body, Message, MessageFields, MessageQueue, ReceivedMessage, SendResult
from rmqpy.remoting.client import BURST_COUNT_MAX, LoopCaller

T = TypeVar("T")


class AsyncProducer(RequestingProducer):
    """Sends messages from an event loop: `Producer` with coroutines, and the same promises.

    ::

        async with rmqpy.AsyncProducer("127.0.0.1:9876") as producer:
            await producer.send("orders", b"...", tag="paid")

    For one event loop, the one it is first used in. Cancelling an awaited `send` ends the wait, not the send.
    """

    _IS_BLOCKING = False

    def _begin(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        if self._checker is not None:
            # Brokers may ask before anything is sent.
            with suppress(RuntimeError):
                self._checker.loop = asyncio.get_running_loop()
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
        #: Messages whose end interceptors wait for, by the token of their send.
        self._watched: dict[int, Message] = {}
        #: Sends start in order, first come first served; the first one waits for room.
        self._line = asyncio.Lock()
        #: Sends in it. The lock does not tell of one that is about to get it.
        self._in_line = 0

    async def send(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        timeout: float | timedelta | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """As `Producer.send`."""
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

    send_oneway = RequestingProducer._send_oneway
    send_batch = RequestingProducer._send_batch
    request = RequestingProducer._request
    queues = RequestingProducer._queues
    recall = RequestingProducer._recall

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
        ready = await self._ready(message, body, queue, timeout, fields)
        task = self._caller.loop.create_task(self._finish_request(ready))
        # Also where the task is cancelled before it begins.
        task.add_done_callback(lambda _: ready.open.close())
        return task

    def transaction(
        self, message: Message | str, body: Body | None = None, /, **fields: Unpack[MessageFields]
    ) -> AsyncTransaction:
        """As `Producer.transaction`, for `async with`. A `transaction_checker` that is a coroutine function runs in the
        event loop of the producer, any other on a thread of its own."""
        return AsyncTransaction(self._transacted(message, body, fields), self._begin_half, self._end_half)

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
            # What leaves last takes a moment.
            await asyncio.to_thread(self._leave)
        finally:
            # Also where this task is cancelled, for its loop ends.
            self._has_ended = True
            self._leave()
            # Senders that wait for room learn that there will be none.
            self._freed.set()
            if self._loop is not None:
                # Closing the connections has failed what was left.
                while self._drain():
                    pass
                self._loop.remove_reader(self._completions.fileno())
                self._caller.close()
            self._completions.close()
        if self._trace is not None:
            await asyncio.to_thread(self._close_trace)

    @property
    def _in_flight(self) -> int:
        """Sends that were accepted and have not ended."""
        # Of what lingers, a batch is one send.
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
                            errors.ClosedError("the producer was let go before it was closed")
                        )
            caller.close()

        in_loop(loop, let_go)

    def _check_open(self) -> None:
        super()._check_open()
        check_loop(self._loop, self._NOUN)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @cached_property
    def _caller(self) -> LoopCaller:
        # In the loop that uses the producer first.
        self._loop = asyncio.get_running_loop()
        # The loop does not hold a producer that was dropped.
        self._loop.add_reader(self._completions.fileno(), _drain, weakref.ref(self))
        if self._checker is not None:
            self._checker.loop = self._loop
        return LoopCaller(self._cluster.client)

    async def _gather(self, message: Message) -> asyncio.Future[SendResult]:
        self._check_open()
        with self._accepted:
            return await self._linger.put(message, self._send_together)

    def _at_once(self, message: Message | str, body: Body | None) -> asyncio.Future[Any] | None:
        """Start a send in one call, where nothing is out of the ordinary and nobody is before it."""
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
        return pending

    async def _submit(
        self, start: Callable[..., Awaitable[SendFuture]], watched: Message | None = None
    ) -> asyncio.Future[Any]:
        """The future of a send that `start` starts, with `announce` and `token`."""
        loop = self._caller.loop
        self._token += 1
        token = self._token
        await start(announce="always", token=token)
        if watched is not None:
            self._watched[token] = watched
        self._pending[token] = pending = loop.create_future()
        return pending

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
        """Take what has come up; whether there was something."""
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
