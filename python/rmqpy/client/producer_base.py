"""Base of both producers, in threads and in event loops: settings, the one way to send, the rule for retries.

Owns a producer's hold of a cluster connection and its native sender. A send is tried by the native half, which chooses
the queue; a reason that keeps it from starting is removed here, and it is tried again. Written once, as coroutines over
a `Caller`.
"""

# ruff: noqa: ASYNC109 - a timeout bounds the send, not the wait
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, ClassVar, Final, Literal, TypeVar

from rmqpy import errors
from rmqpy._native import Completions, NotSent, Sender, SendFuture
from rmqpy.client import retry
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.lifetime import Lifetime
from rmqpy.client.routes import TEMPLATE_QUEUES, Route
from rmqpy.client.selectors import QueueSelector
from rmqpy.config.client import Address, ClientConfig, seconds
from rmqpy.message import Body, Message, MessageQueue, SendResult
from rmqpy.remoting.client import Caller

T = TypeVar("T")

DEFAULT_GROUP: Final = "rmqpy"
#: Time for one-way sends to leave in, when the last client closes.
CLOSE_GRACE_S: Final = 0.2
#: Bytes of a message in a batch beside body and properties: its frame, and the id it gets.
_MEMBER_BYTES: Final = 22 + 32
#: A route that is being looked up again is used meanwhile, and asked for so often.
_ROUTE_REUSE_S: Final = 0.01

#: Address, name of the broker, queue id, and whether only that queue will do.
Chosen = tuple[str, str, int, bool]
AnnouncedOutcomes = Literal["never", "failures", "always"]


class ProducerBase(Lifetime, ABC):
    """Settings, sending and retries of both producers."""

    _NOUN = "producer"

    #: A send without room waits for some in the native half, blocking its thread.
    _IS_BLOCKING: ClassVar[bool]

    def __init__(
        self,
        namesrv: Address | ClientConfig | None = None,
        *,
        group: str | None = None,
        send_timeout: float | timedelta = 3.0,
        retries: int = 2,
        retry_not_stored: bool = False,
        compress_above: int | None = 4096,
        compression: Literal["zlib", "lz4", "zstd"] = "zlib",
        max_message_size: int = 4 << 20,
        max_in_flight: int = 1024,
        max_buffered_bytes: int = 64 << 20,
        when_full: Literal["wait", "raise"] = "wait",
        selector: QueueSelector | None = None,
    ) -> None:
        """`retry_not_stored`: try another broker also when the message is stored, but not flushed or copied as the
        broker promises. `max_in_flight` and `max_buffered_bytes` bound what `submit` has under way; `when_full`
        says what it does then. `selector` is round robin unless given; a sharding key goes before it."""
        super().__init__(namesrv)
        self._retries = retries
        self._is_waiting_when_full = when_full == "wait"
        self._selector = selector
        self._compress_above = compress_above
        self._cluster = ClusterConnection.hold(self.config)
        self._completions = Completions()
        try:
            self._sender = Sender(
                self._cluster.client,
                self._completions,
                group=group or DEFAULT_GROUP,
                # The native half compresses bodies of at least so many bytes.
                compress_above=None if compress_above is None else compress_above + 1,
                compression=compression,
                template_queues=TEMPLATE_QUEUES,
                max_in_flight=max_in_flight,
                max_buffered_bytes=max_buffered_bytes,
                retry_not_safe=retry_not_stored,
                timeout=seconds(send_timeout),
                waits_for_room=self._IS_BLOCKING and self._is_waiting_when_full,
                body_bytes_max=max_message_size,
            )
        except BaseException:
            self._cluster.release()
            raise
        self.is_closed = False
        self._begin()

    def _release(self) -> None:
        self._completions.close()
        self._cluster.release()

    @abstractmethod
    def _begin(self) -> None:
        """Make what only one kind of producer has."""

    @cached_property
    @abstractmethod
    def _caller(self) -> Caller:
        """The way to wait for routes."""

    @abstractmethod
    async def _in_turn(self, send: Callable[[], T | NotSent]) -> T | NotSent:
        """Try a send, behind those that wait for room."""

    @abstractmethod
    async def _stored(self, topic: str, send: Callable[..., SendFuture | NotSent]) -> list[SendResult]:
        """Start a send, which takes `announce` and `token`, and wait for its end."""

    # ---- the one way to send -----------------------------------------------------------------------------

    async def _send(
        self,
        message: Message | str,
        body: Body | None,
        queue: MessageQueue | None,
        timeout: float | timedelta | None,
        *,
        announce: AnnouncedOutcomes,
        token: int = 0,
        refused: NotSent | None = None,
    ) -> SendFuture:
        """Start sending a message, or a body to a topic. `refused`: it was tried before, to no avail."""
        message, body, to = await self._placed(message, body, queue)
        limit = None if timeout is None else seconds(timeout)
        send = partial(self._sender.send, message, body, to=to, timeout=limit, announce=announce, token=token)
        return await self._start(_topic(message), send, refused)

    async def _send_oneway(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        **fields: Any,
    ) -> None:
        """Send without an answer: fast, and a loss goes unnoticed."""
        if fields:
            message, body = complete(message, body, fields)
        message, body, to = await self._placed(message, body, queue)
        await self._start(_topic(message), partial(self._sender.send_oneway, message, body, to=to))

    async def _send_batch(
        self, messages: Iterable[Message], *, timeout: float | timedelta | None = None
    ) -> list[SendResult]:
        """Send messages of one topic side by side into one queue, in order; one result for each.

        Cut by size where one request cannot hold them. Raises `SendError` when a part fails: the parts before it
        are stored.
        """
        self._check_open()
        messages = list(messages)
        limit = None if timeout is None else seconds(timeout)
        results: list[SendResult] = []
        begin = 0
        for end in self._sender.cut(messages, _MEMBER_BYTES):
            part, begin = messages[begin:end], end
            # What follows goes behind what is stored.
            to = await self._choose(part[0], results[-1].queue if results else None)
            send = partial(self._sender.send_batch, part, to=to, timeout=limit)
            results += await self._stored(part[0].topic, send)
        return results

    async def _queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that take messages, sorted."""
        self._check_open()
        return list((await self._route(topic)).writable)

    async def _start(self, topic: str, send: Callable[[], T | NotSent], refused: NotSent | None = None) -> T:
        """Try a send until it starts, removing what keeps it from that."""
        while True:
            if refused is not None:
                if refused.reason == "no_room":
                    raise errors.BufferFull(f"{self._sender.in_flight} messages are on their way")
                self._learn(await self._route(topic))
            sent = await self._in_turn(send)
            if not isinstance(sent, NotSent):
                return sent
            refused = sent

    async def _placed(
        self, message: Message | str, body: Body | None, queue: MessageQueue | None
    ) -> tuple[Message | str, Body | None, Chosen | None]:
        self._check_open()
        if queue is None and self._selector is None:
            return message, body, None
        if isinstance(message, str):
            message, body = complete(message, body, {})
        return message, body, await self._choose(message, queue)

    async def _choose(self, message: Message, queue: MessageQueue | None) -> Chosen | None:
        """The queue the user chose, by argument or selector; `None` leaves it to sharding key or rotation."""
        if queue is not None:
            if queue.topic != message.topic:
                raise ValueError(f"{queue} is no queue of topic {message.topic}")
            return chosen(await self._route(message.topic), queue)
        if self._selector is None or message.sharding_key is not None:
            return None
        route = await self._route(message.topic)
        return chosen(route, self._selector(message, route.writable), is_pinned=False)

    async def _route(self, topic: str) -> Route:
        return await self._cluster.routes.publish(topic, self._caller)

    def _learn(self, route: Route) -> None:
        """Let the native half choose among the queues of this route, while it is fresh."""
        queues = [(route.master(each.broker), each.broker, each.queue_id) for each in route.writable]
        fresh_s = max(self._cluster.routes.fresh_s(route.topic), _ROUTE_REUSE_S)
        self._sender.learn(route.topic, queues, fresh_s)

    def _decide(self, future: SendFuture, *, has_paused: bool = False) -> float:
        """After a failed attempt: the next one, or the end. Never waits.

        Returns the seconds after which to decide again, having paused; 0 when that was all.
        """
        self._cluster.routes.doubt(future.topic)
        self._sender.doubt(future.topic)
        with suppress(errors.RocketMQError):
            route = self._cluster.routes.cached(future.topic, self._caller)
            if route is not None and not self.is_closed:
                queue = retry.next_queue(future, route, self._retries)
                if queue is not None:
                    pause = 0.0 if has_paused else retry.pause_s(future, queue)
                    if not pause:
                        self._sender.again(future, route.master(queue.broker), queue.broker, queue.queue_id)
                    return pause
        future.give_up()
        return 0.0


def complete(message: Message | str, body: Body | None, fields: dict[str, Any]) -> tuple[Message, None]:
    """The message that a topic, a body and fields stand for."""
    if not isinstance(message, str):
        raise TypeError("a Message is complete: use message.replace(...) to change it")
    if body is None:
        raise TypeError("a topic needs a body: send(topic, body) or send(Message(...))")
    return Message(message, body, **fields), None


def chosen(route: Route, queue: MessageQueue, *, is_pinned: bool = True) -> Chosen:
    return route.master(queue.broker), queue.broker, queue.queue_id, is_pinned


def _topic(message: Message | str) -> str:
    return message if isinstance(message, str) else message.topic
