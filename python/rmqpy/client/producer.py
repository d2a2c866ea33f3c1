"""`Producer` and `AsyncProducer`: sending, in threads and in event loops.

Owns the choice of a queue and what follows a failed attempt; both happen in Python, on a cached route. Everything
between is native: a message that is stored at the first attempt costs its sender no thread switch, and a future
nobody has looked at yet enters Python only when its attempt failed.

Invariant: each send ends once, stored or given up, within its timeout.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from rmqpy import errors
from rmqpy._native import Completions, Sender, SendFuture
from rmqpy.client import retry
from rmqpy.client.config import Address, ClientConfig, seconds
from rmqpy.client.routes import TEMPLATE_QUEUES, Route
from rmqpy.client.selectors import QueueSelector, by_sharding_key, round_robin
from rmqpy.client.session import Session
from rmqpy.message import Body, Message, MessageQueue, SendResult
from rmqpy.remoting.client import BURST_COUNT_MAX, BlockingCaller, Caller, LoopCaller, run

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

DEFAULT_GROUP: Final = "rmqpy"
MESSAGE_BYTES_MAX: Final = 4 << 20
#: What a message takes in a batch beside body and properties: its frame, and the id it gets.
_MEMBER_BYTES: Final = 22 + 32

Compression = Literal["zlib", "lz4", "zstd"]
Callback = Callable[[SendResult | errors.RocketMQError], None]


class _Core:
    """What both producers have in common."""

    def __init__(
        self,
        namesrv: Address | ClientConfig | None,
        *,
        group: str | None,
        send_timeout: float | timedelta,
        retries: int,
        retry_not_stored: bool,
        compress_above: int | None,
        compression: Compression,
        max_message_size: int,
        max_in_flight: int,
        max_buffered_bytes: int,
        when_full: Literal["wait", "raise"],
        selector: QueueSelector | None,
    ) -> None:
        self.is_closed = False
        self.config = ClientConfig.of(namesrv)
        self._send_timeout = seconds(send_timeout)
        self._retries = retries
        self._max_message_size = max_message_size
        self._is_waiting_when_full = when_full == "wait"
        self._selector = selector or round_robin()
        self._pid = os.getpid()
        self._session = Session.hold(self.config)
        self._completions = Completions()
        try:
            self._sender = Sender(
                self._session.client,
                self._completions,
                group=group or DEFAULT_GROUP,
                # The native half compresses bodies of at least so many bytes.
                compress_above=None if compress_above is None else compress_above + 1,
                compression=compression,
                template_queues=TEMPLATE_QUEUES,
                max_in_flight=max_in_flight,
                max_buffered_bytes=max_buffered_bytes,
                retry_not_safe=retry_not_stored,
            )
        except BaseException:
            self._session.release()
            self.is_closed = True
            raise

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<{type(self).__name__} to {';'.join(self.config.namesrv)}: {state}>"

    def __del__(self) -> None:
        if not getattr(self, "is_closed", True) and self._pid == os.getpid():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
            self._completions.close()
            self._session.release()

    @property
    def _is_forked(self) -> bool:
        return self._pid != os.getpid()

    def _check_open(self) -> None:
        if self.is_closed:
            raise errors.ClosedError("the producer is closed")
        if self._is_forked:
            raise errors.ForkedError("this producer was made before fork()")

    def _message(self, message: Message | str, body: Body | None, fields: dict[str, Any]) -> Message:
        """The message to send, however it was given; refused here if every broker would refuse it."""
        self._check_open()
        if isinstance(message, str):
            if body is None:
                raise TypeError("a topic needs a body: send(topic, body) or send(Message(...))")
            message = Message(message, body, **fields)
        elif body is not None or fields:
            raise TypeError("a Message is complete: use message.replace(...) to change it")
        if len(message.body) > self._max_message_size:
            raise errors.MessageTooLarge(
                f"the body has {len(message.body)} bytes, brokers take {self._max_message_size}",
                topic=message.topic,
                hint="send it in parts, or raise max_message_size here and maxMessageSize in broker.conf",
            )
        return message

    def _choose(
        self, message: Message, queue: MessageQueue | None, route: Route
    ) -> tuple[MessageQueue, bool]:
        """The queue of the first attempt, and whether only that queue will do."""
        if queue is not None:
            if queue.topic != message.topic:
                raise ValueError(f"{queue} is no queue of topic {message.topic}")
            return queue, True
        if message.sharding_key is not None:
            return by_sharding_key(message, route.writable), True
        return self._selector(message, route.writable), False

    def _decide(self, future: SendFuture, caller: Caller) -> None:
        """After a failed attempt: the next one, or the end. Never waits."""
        self._session.routes.doubt(future.topic)
        with suppress(errors.RocketMQError):
            route = self._session.routes.cached(future.topic, caller)
            if route is not None and not self.is_closed:
                queue = retry.next_queue(future, route, self._retries)
                if queue is not None:
                    self._sender.again(future, route.master(queue.broker), queue.broker, queue.queue_id)
                    return
        future.give_up()

    def _chunks(self, messages: Iterable[Message]) -> Iterator[list[Message]]:
        """Messages of one topic, cut into batches that brokers take."""
        chunk: list[Message] = []
        first: Message | None = None
        size = 0
        for message in messages:
            message = self._message(message, None, {})
            first = first or message
            if message.topic != first.topic or message.sharding_key != first.sharding_key:
                raise ValueError("the messages of a batch need one topic, and one sharding_key if any")
            if message.deliver_at or message.deliver_after or message.delay_level:
                raise ValueError("a batch cannot be delayed: send delayed messages one by one")
            taken = message.size + _MEMBER_BYTES
            if chunk and size + taken > self._max_message_size:
                yield chunk
                chunk, size = [], 0
            chunk.append(message)
            size += taken
        if chunk:
            yield chunk


# ---- in threads ----------------------------------------------------------------------------------------


class Producer(_Core):
    """Sends messages. Thread-safe; make one and keep it.

    ::

        with rmqpy.Producer("127.0.0.1:9876") as producer:
            producer.send("orders", b"...", tag="paid", keys="A-1")

    A send ends within its timeout: stored, or with `SendError`. After a failed attempt it is tried on other brokers,
    up to `retries` times; a broker that stored a message and could not say so has it twice then. Sends go on while
    every name server is down, to the brokers known so far.
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
        """`retry_not_stored`: try another broker also when the message is stored, but not flushed or copied as the
        broker promises. `max_in_flight` and `max_buffered_bytes` bound what `submit` has under way; `when_full`
        says what it does then. `selector` is round robin unless given; a sharding key goes before it."""
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
        self._caller = BlockingCaller(self._session.client)
        self._callbacks: dict[int, Callback] = {}
        self._next_token = 0
        self._lock = threading.Lock()
        self._delivery: threading.Thread | None = None
        _OPEN.add(self)

    def send(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        timeout: float | timedelta | None = None,
        **fields: Any,
    ) -> SendResult:
        """Send and wait for the broker. `send(Message(...))`, or `send(topic, body, tag=..., keys=...)`.

        Equal sharding keys go to one queue. Raises `SendError` with every attempt listed, `RouteError` when there is
        nowhere to send to, and `ValueError` for what no broker takes.
        """
        future = self._ship(message, body, fields, queue, timeout, announce="never")
        return self._settled(future).result()

    def submit(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        timeout: float | timedelta | None = None,
        callback: Callback | None = None,
        **fields: Any,
    ) -> SendFuture:
        """Start sending and return at once. `future.result()` waits.

        Blocks, or raises `BufferFull`, only while the in-flight budget is used up. `callback` gets the result or
        the error, on one thread all callbacks share.
        """
        self._deliver()
        if callback is None:
            return self._ship(message, body, fields, queue, timeout, announce="failures")
        with self._lock:
            self._next_token += 1
            token = self._next_token
        self._callbacks[token] = callback
        try:
            return self._ship(message, body, fields, queue, timeout, announce="always", token=token)
        except BaseException:
            del self._callbacks[token]
            raise

    def send_oneway(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        **fields: Any,
    ) -> None:
        """Send without an answer: fast, and nobody learns of a loss."""
        message = self._message(message, body, fields)
        route = self._route(message.topic)
        queue, _ = self._choose(message, queue, route)
        self._sender.send_oneway(message, route.master(queue.broker), queue.broker, queue.queue_id)

    def send_batch(
        self, messages: Iterable[Message], *, timeout: float | timedelta | None = None
    ) -> list[SendResult]:
        """Send messages of one topic side by side into one queue, in order; one result for each.

        Cut by size where one request cannot hold them. Raises `SendError` when a part fails: the parts before it
        are stored.
        """
        results: list[SendResult] = []
        queue: MessageQueue | None = None
        for chunk in self._chunks(messages):
            route = self._route(chunk[0].topic)
            place, is_pinned = self._choose(chunk[0], queue, route)
            future = self._sender.send_batch(
                chunk,
                route.master(place.broker),
                place.broker,
                place.queue_id,
                timeout=self._timeout(timeout),
                room_timeout=self._room_timeout(timeout),
                announce="never",
                is_pinned=is_pinned,
            )
            results += self._settled(self._admitted(future)).results()
            # What follows goes behind what is stored.
            queue = results[-1].queue
        return results

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that take messages, sorted."""
        self._check_open()
        return list(self._route(topic).writable)

    def flush(self, timeout: float | timedelta | None = None) -> None:
        """Wait until nothing is on its way. Raises `RequestTimeout`."""
        self._check_open()
        if not self._sender.flush(None if timeout is None else seconds(timeout)):
            raise errors.RequestTimeout(f"{self._sender.in_flight} messages are still on their way")

    def close(self, timeout: float | timedelta | None = 5.0) -> None:
        """Let what is on its way finish, for at most `timeout` seconds, then end. Idempotent.

        What was not stored by then fails with `SendError`.
        """
        if self.is_closed:
            return
        _OPEN.discard(self)
        if not self._is_forked:
            self._sender.flush(None if timeout is None else seconds(timeout))
        self.is_closed = True
        if self._is_forked:
            return
        # Closing the connections fails what is left; closing the queue gives it up.
        self._session.release()
        self._completions.close()
        if self._delivery is not None and self._delivery is not threading.current_thread():
            self._delivery.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _route(self, topic: str) -> Route:
        routes = self._session.routes
        route = routes.cached(topic, self._caller)
        return route if route is not None and route.writable else run(routes.publish(topic, self._caller))

    def _ship(
        self,
        message: Message | str,
        body: Body | None,
        fields: dict[str, Any],
        queue: MessageQueue | None,
        timeout: float | timedelta | None,
        *,
        announce: Literal["never", "failures", "always"],
        token: int = 0,
    ) -> SendFuture:
        message = self._message(message, body, fields)
        route = self._route(message.topic)
        place, is_pinned = self._choose(message, queue, route)
        future = self._sender.send(
            message,
            route.master(place.broker),
            place.broker,
            place.queue_id,
            timeout=self._timeout(timeout),
            room_timeout=self._room_timeout(timeout),
            announce=announce,
            token=token,
            is_pinned=is_pinned,
        )
        return self._admitted(future)

    def _timeout(self, timeout: float | timedelta | None) -> float:
        return self._send_timeout if timeout is None else seconds(timeout)

    def _room_timeout(self, timeout: float | timedelta | None) -> float:
        return self._timeout(timeout) if self._is_waiting_when_full else 0.0

    def _admitted(self, future: SendFuture | None) -> SendFuture:
        if future is None:
            raise errors.BufferFull(f"{self._sender.in_flight} messages are on their way")
        return future

    def _settled(self, future: SendFuture) -> SendFuture:
        while not future.settle():
            self._decide(future, self._caller)
        return future

    def _deliver(self) -> None:
        """Make sure that somebody looks at what fails, and calls back."""
        if self._delivery is None:
            self._check_open()
            with self._lock:
                if self._delivery is None:
                    thread = threading.Thread(
                        target=_deliver, args=(weakref.ref(self), self._completions), daemon=True
                    )
                    thread.name = "rmqpy-delivery"
                    thread.start()
                    self._delivery = thread

    def _landed(self, token: int, future: SendFuture) -> None:
        if not future.done():
            self._decide(future, self._caller)
        if not future.done():
            return
        callback = self._callbacks.pop(token, None) if token else None
        if callback is None:
            return
        try:
            callback(_outcome(future))
        except Exception:
            log.exception("the callback of a send to %s failed", future.topic)


def _deliver(owner: weakref.ref[Producer], completions: Completions) -> None:
    """The delivery thread: ends when the producer is closed, or gone."""
    while completions.wait():
        landed = completions.take(BURST_COUNT_MAX)
        if not landed and completions.is_closed():
            return
        producer = owner()
        for token, future in landed:
            if producer is None:
                future.give_up()
            else:
                producer._landed(token, future)
        del producer


def _outcome(future: SendFuture) -> SendResult | errors.RocketMQError:
    try:
        return future.result()
    except errors.RocketMQError as error:
        return error


#: Producers nobody has closed yet: leaving the program flushes them.
_OPEN: Final[weakref.WeakSet[Producer]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for producer in list(_OPEN):
        producer.close()


# ---- in event loops ------------------------------------------------------------------------------------


class AsyncProducer(_Core):
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
        self._landing: asyncio.Event | None = None
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
            lambda token: self._sender.send(
                message,
                route.master(place.broker),
                place.broker,
                place.queue_id,
                timeout=self._send_timeout if timeout is None else seconds(timeout),
                announce="always",
                token=token,
                is_pinned=is_pinned,
            )
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
            results += await (await self._admit(ship))
            queue = results[-1].queue
        return results

    async def queues(self, topic: str) -> list[MessageQueue]:
        """As `Producer.queues`."""
        self._check_open()
        return list((await self._route(topic)).writable)

    async def flush(self, timeout: float | timedelta | None = None) -> None:  # noqa: ASYNC109
        """As `Producer.flush`."""
        import asyncio

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
        self._session.release()
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
        routes = self._session.routes
        route = routes.cached(topic, caller)
        return route if route is not None and route.writable else await routes.publish(topic, caller)

    def _open(self) -> LoopCaller:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._caller = LoopCaller(self._session.client)
        self._landing = asyncio.Event()
        self._loop.add_reader(self._completions.fileno(), self._drain)
        return self._caller

    async def _admit(self, ship: Callable[[int], SendFuture | None]) -> asyncio.Future[Any]:
        """Start a send as soon as there is room for it."""
        assert self._loop is not None, "a route was looked up before"
        assert self._landing is not None
        self._token += 1
        token = self._token
        while ship(token) is None:
            if not self._is_waiting_when_full:
                raise errors.BufferFull(f"{self._sender.in_flight} messages are on their way")
            self._landing.clear()
            await self._landing.wait()
            self._check_open()
        self._pending[token] = pending = self._loop.create_future()
        return pending

    def _drain(self) -> None:
        assert self._caller is not None
        for token, future in self._completions.take(BURST_COUNT_MAX):
            if not future.done():
                self._decide(future, self._caller)
            if future.done():
                self._finish(token, future)

    def _finish(self, token: int, future: SendFuture) -> None:
        pending = self._pending.pop(token, None)
        if self._landing is not None:
            self._landing.set()
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
