"""`AsyncProducer`: sending from an event loop.

Outcomes come up in bursts, one wake-up of the loop for each; failed attempts are decided there, in the loop's thread.

Invariant: each send ends once, stored or given up, within its timeout, whether or not it is still awaited.
"""

# ruff: noqa: ASYNC109 - a timeout bounds the send, not the wait
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Self, TypeVar, Unpack

from rmqpy import errors
from rmqpy._native import NotSent, SendFuture
from rmqpy.client import outcome
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
        self._linger = LoopLinger(
            self._linger_s,
            self._in_flight_max,
            is_waiting_when_full=self._is_waiting_when_full,
        )
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._token = 0
        #: Messages whose end interceptors wait for, by the token of their send.
        self._watched: dict[int, Message] = {}
        #: Sends start in order, first come first served; the first one waits for room.
        self._line = asyncio.Lock()
        #: Sends in it. The lock does not tell of one that is about to get it.
        self._in_line = 0
        self._freed = asyncio.Event()

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
        if self._pending:
            limit = None if timeout is None else seconds(timeout)
            _, late = await asyncio.wait(list(self._pending.values()), timeout=limit)
            if late:
                raise errors.RequestTimeout(f"{len(late)} messages are still on their way")

    async def close(self, timeout: float | timedelta | None = 5.0) -> None:
        """As `Producer.close`."""
        if self.is_closed:
            return
        if self._is_forked:
            self.is_closed = True
            return
        with suppress(errors.RequestTimeout):
            await self.flush(timeout)
        self.is_closed = True
        self._freed.set()
        self._leave()
        if self._loop is not None:
            # Closing the connections has failed what was left.
            self._drain()
            self._loop.remove_reader(self._completions.fileno())
            self._caller.close()
        self._completions.close()
        if self._trace is not None:
            await asyncio.to_thread(self._close_trace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @cached_property
    def _caller(self) -> LoopCaller:
        # In the loop that uses the producer first.
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._completions.fileno(), self._drain)
        if self._checker is not None:
            self._checker.loop = self._loop
        return LoopCaller(self._cluster.client)

    async def _gather(self, message: Message) -> asyncio.Future[SendResult]:
        self._check_open()
        future = await self._linger.put(message, self._send_together)
        self._token += 1
        # `flush` waits for it.
        self._pending[token := self._token] = future
        future.add_done_callback(lambda _: self._pending.pop(token, None))
        return future

    def _at_once(self, message: Message | str, body: Body | None) -> asyncio.Future[Any] | None:
        """Start a send in one call, where nothing is out of the ordinary and nobody is before it."""
        loop = self._caller.loop
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
        self._check_open()
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
            self._check_open()
            sent = send()
            if not (isinstance(sent, NotSent) and sent.reason == "no_room" and self._is_waiting_when_full):
                return sent
            while not self._sender.has_room(sent.bytes) and not self.is_closed:
                self._freed.clear()
                await self._freed.wait()

    def _drain(self) -> None:
        for token, future in self._completions.take(BURST_COUNT_MAX):
            self._completed(token, future)

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
