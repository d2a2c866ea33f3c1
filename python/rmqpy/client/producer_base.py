"""Base of both producers, in threads and in event loops: checks, the choice of a queue, the rule for retries.

Owns a producer's hold of a cluster connection and its native sender. Nothing here waits: a route that is not known yet
is the business of the two producers, as is waiting for outcomes.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any, Final, Literal

from rmqpy import errors
from rmqpy._native import Completions, SendBatch, Sender, SendFuture
from rmqpy.client import retry
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.routes import TEMPLATE_QUEUES, Route
from rmqpy.client.selectors import QueueSelector, by_sharding_key, round_robin
from rmqpy.config.client import Address, ClientConfig, seconds
from rmqpy.message import Body, Message, MessageQueue
from rmqpy.remoting.client import Caller

DEFAULT_GROUP: Final = "rmqpy"
MESSAGE_BYTES_MAX: Final = 4 << 20
#: What one-way sends get to leave in, when the last client closes.
CLOSE_GRACE_S: Final = 0.2
#: What a message takes in a batch beside body and properties: its frame, and the id it gets.
_MEMBER_BYTES: Final = 22 + 32

#: Properties of a batch itself: its id, and that its sender waits.
_BATCH_BYTES: Final = 64

Compression = Literal["zlib", "lz4", "zstd"]


def room_for(messages: Iterable[Message]) -> int:
    """Bytes that messages take of the budget at most, alone or together in a batch."""
    return _BATCH_BYTES + sum(message.size + _MEMBER_BYTES for message in messages)


class ProducerBase:
    """State and checks of both producers."""

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
        # The native half knows the rule of turns, too; any other one has to be asked with every message.
        self._is_in_turn = selector is None
        self._compress_above = compress_above
        self._turn = count(random.randrange(1 << 16))
        self._pid = os.getpid()
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
                timeout=self._send_timeout,
                room_timeout=self._send_timeout if self._is_waiting_when_full else 0.0,
                body_bytes_max=max_message_size,
            )
        except BaseException:
            self._cluster.release()
            self.is_closed = True
            raise

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<{type(self).__name__} to {';'.join(self.config.namesrv)}: {state}>"

    def __del__(self) -> None:
        if not getattr(self, "is_closed", True) and self._pid == os.getpid():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
            self._completions.close()
            self._cluster.release()

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

    def _place(self, send_batch: SendBatch, route: Route) -> tuple[MessageQueue, bool]:
        """The queue of rows that travel together, and whether only that queue will do."""
        index, broker, queue_id = send_batch.place
        if index is not None:
            return route.writable[index], True
        if queue_id is None:
            return route.writable[next(self._turn) % len(route.writable)], False
        for queue in route.writable:
            if queue.queue_id == queue_id and broker in (None, queue.broker):
                return queue, True
        raise ValueError(f"topic {route.topic} has no queue {queue_id}" + (f" on {broker}" if broker else ""))

    def _decide(self, future: SendFuture, caller: Caller, *, has_paused: bool = False) -> float:
        """After a failed attempt: the next one, or the end. Never waits.

        Returns the seconds after which to decide again, having paused; 0 when that was all.
        """
        self._cluster.routes.doubt(future.topic)
        self._sender.forget(future.topic)
        with suppress(errors.RocketMQError):
            route = self._cluster.routes.cached(future.topic, caller)
            if route is not None and not self.is_closed:
                queue = retry.next_queue(future, route, self._retries)
                if queue is not None:
                    pause = 0.0 if has_paused else retry.pause_s(future, queue)
                    if not pause:
                        self._sender.again(future, route.master(queue.broker), queue.broker, queue.queue_id)
                    return pause
        future.give_up()
        return 0.0

    def _chunks(self, messages: Iterable[Message]) -> Iterator[list[Message]]:
        """Messages of one topic, cut into batches that brokers take."""
        messages = list(messages)
        self._check_open()
        ends = self._sender.cut(messages, _MEMBER_BYTES)
        if ends is None:
            yield from self._checked_chunks(messages)
            return
        begin = 0
        for end in ends:
            yield messages[begin:end]
            begin = end

    def _checked_chunks(self, messages: list[Message]) -> Iterator[list[Message]]:
        """Likewise, message by message: says what is wrong with one."""
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
