"""`AsyncProducer`: sending from an event loop.

Outcomes come up in bursts, one wake-up of the loop for each; failed attempts are decided there, in the loop's thread.

Invariant: each send ends once, stored or given up, within its timeout, whether or not it is still awaited.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Literal, Self

from rmqpy import errors
from rmqpy._native import Sender, SendFuture
from rmqpy.client.producer_base import CLOSE_GRACE_S, MESSAGE_BYTES_MAX, Compression, ProducerBase, room_for
from rmqpy.client.routes import Route
from rmqpy.client.selectors import QueueSelector
from rmqpy.config.client import Address, ClientConfig, seconds
from rmqpy.message import Body, Message, MessageQueue, SendResult
from rmqpy.remoting.client import BURST_COUNT_MAX, LoopCaller


class AsyncProducer(ProducerBase):
    """Sends messages from an event loop: `Producer` with coroutines, and the same promises.

    ::

        async with rmqpy.AsyncProducer("127.0.0.1:9876") as producer:
            await producer.send("orders", b"...", tag="paid")

    For one event loop, the one it is first used in. Cancelling an awaited `send` ends the wait, not the send.
    """

    def __init__(
        self,
        namesrv: Address | ClientConfig | None = None,
        *,
        group: str | None = None,
        send_timeout: float | timedelta = 3.0,
        retries: int = 2,
        retry_not_stored: bool = False,
        compress_above: int | None = 4096,
        compression: Compression = "zlib",
        max_message_size: int = MESSAGE_BYTES_MAX,
        max_in_flight: int = 1024,
        max_buffered_bytes: int = 64 << 20,
        when_full: Literal["wait", "raise"] = "wait",
        selector: QueueSelector | None = None,
    ) -> None:
        """As `Producer`."""
        super().__init__(
            namesrv,
            group=group,
            send_timeout=send_timeout,
            retries=retries,
            retry_not_stored=retry_not_stored,
            compress_above=compress_above,
            compression=compression,
            max_message_size=max_message_size,
            max_in_flight=max_in_flight,
            max_buffered_bytes=max_buffered_bytes,
            when_full=when_full,
            selector=selector,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._caller: LoopCaller | None = None
        self._pending: dict[int, asyncio.Future[Any]] = {}
        #: Sends that wait for room, in order.
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._token = 0

    async def send(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - it bounds the send, not the wait
        **fields: Any,
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
        timeout: float | timedelta | None = None,  # noqa: ASYNC109
        **fields: Any,
    ) -> asyncio.Future[SendResult]:
        """Start sending; the future has the result. Waits, or raises `BufferFull`, only while the in-flight budget is
        used up."""
        message = self._message(message, body, fields)
        route = await self._route(message.topic)
        place, is_pinned = self._choose(message, queue, route)
        return await self._admit(
            room_for([message]),
            lambda token: self._sender.send(
                message,
                route.master(place.broker),
                place.broker,
                place.queue_id,
                timeout=self._send_timeout if timeout is None else seconds(timeout),
                announce="always",
                token=token,
                is_pinned=is_pinned,
            ),
        )

    async def send_oneway(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        **fields: Any,
    ) -> None:
        """As `Producer.send_oneway`."""
        message = self._message(message, body, fields)
        route = await self._route(message.topic)
        queue, _ = self._choose(message, queue, route)
        self._sender.send_oneway(message, route.master(queue.broker), queue.broker, queue.queue_id)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109
    ) -> list[SendResult]:
        """As `Producer.send_batch`."""
        results: list[SendResult] = []
        queue: MessageQueue | None = None
        for chunk in self._chunks(messages):
            route = await self._route(chunk[0].topic)
            place, is_pinned = self._choose(chunk[0], queue, route)
            ship = _batch_shipper(
                self._sender,
                chunk,
                route.master(place.broker),
                place,
                self._send_timeout if timeout is None else seconds(timeout),
                is_pinned,
            )
            results += await (await self._admit(room_for(chunk), ship))
            queue = results[-1].queue
        return results

    async def queues(self, topic: str) -> list[MessageQueue]:
        """As `Producer.queues`."""
        self._check_open()
        return list((await self._route(topic)).writable)

    async def flush(self, timeout: float | timedelta | None = None) -> None:  # noqa: ASYNC109
        """As `Producer.flush`."""
        self._check_open()
        if self._pending:
            limit = None if timeout is None else seconds(timeout)
            _, late = await asyncio.wait(list(self._pending.values()), timeout=limit)
            if late:
                raise errors.RequestTimeout(f"{len(late)} messages are still on their way")

    async def close(self, timeout: float | timedelta | None = 5.0) -> None:  # noqa: ASYNC109
        """As `Producer.close`."""
        if self.is_closed:
            return
        if self._is_forked:
            self.is_closed = True
            return
        with suppress(errors.RequestTimeout):
            await self.flush(timeout)
        self.is_closed = True
        self._call_first()
        self._cluster.release(grace_s=CLOSE_GRACE_S)
        if self._loop is not None and self._caller is not None:
            # Closing the connections has failed what was left.
            self._drain()
            self._loop.remove_reader(self._completions.fileno())
            self._caller.close()
        self._completions.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _route(self, topic: str) -> Route:
        caller = self._caller or self._open()
        routes = self._cluster.routes
        route = routes.cached(topic, caller)
        return route if route is not None and route.writable else await routes.publish(topic, caller)

    def _open(self) -> LoopCaller:
        self._loop = asyncio.get_running_loop()
        self._caller = LoopCaller(self._cluster.client)
        self._loop.add_reader(self._completions.fileno(), self._drain)
        return self._caller

    async def _admit(self, size: int, ship: Callable[[int], SendFuture | None]) -> asyncio.Future[Any]:
        """Start a send as soon as there is room for it, first come first served."""
        assert self._loop is not None, "a route was looked up before"
        self._token += 1
        token = self._token
        if self._waiting or not self._sender.has_room(size):
            await self._wait_for_room(size)
        while ship(token) is None:
            await self._wait_for_room(size)
        self._pending[token] = pending = self._loop.create_future()
        return pending

    async def _wait_for_room(self, size: int) -> None:
        assert self._loop is not None
        if not self._is_waiting_when_full:
            raise errors.BufferFull(f"{self._sender.in_flight} messages are on their way")
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        try:
            while True:
                await turn
                self._check_open()
                if self._sender.has_room(size):
                    return
                # Too little yet: still the first to wait.
                turn = self._waiting[0] = self._loop.create_future()
        finally:
            # Found at once, unless this is a cancelled wait from the middle.
            self._waiting.remove(turn)
            self._call_first()

    def _call_first(self) -> None:
        """Let the first that waits look for room. It lets the next one look when it has found some."""
        if self._waiting and not self._waiting[0].done():
            self._waiting[0].set_result(None)

    def _drain(self) -> None:
        for token, future in self._completions.take(BURST_COUNT_MAX):
            self._completed(token, future)

    def _completed(self, token: int, future: SendFuture, *, has_paused: bool = False) -> None:
        assert self._caller is not None
        assert self._loop is not None
        if not future.done() and (pause := self._decide(future, self._caller, has_paused=has_paused)):
            self._loop.call_later(pause, partial(self._completed, token, future, has_paused=True))
        elif future.done():
            self._finish(token, future)

    def _finish(self, token: int, future: SendFuture) -> None:
        pending = self._pending.pop(token, None)
        self._call_first()
        if pending is None or pending.done():
            return
        try:
            results = future.results()
        except errors.RocketMQError as error:
            pending.set_exception(error)
        else:
            pending.set_result(results if future.is_batch else results[0])


def _batch_shipper(
    sender: Sender,
    chunk: Sequence[Message],
    address: str,
    place: MessageQueue,
    timeout: float,
    is_pinned: bool,
) -> Callable[[int], SendFuture | None]:
    return lambda token: sender.send_batch(
        chunk,
        address,
        place.broker,
        place.queue_id,
        timeout=timeout,
        announce="always",
        token=token,
        is_pinned=is_pinned,
    )
