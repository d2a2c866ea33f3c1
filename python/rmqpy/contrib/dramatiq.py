"""Dramatiq broker: a queue is a topic, which all workers share; delayed messages and retries wait at the broker.

Consumers run in one event loop in a separate thread, because worker threads acknowledge while a consumer's thread
receives. The thread and the clients are created at their first use, so that they belong to the process that uses them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

import dramatiq
from dramatiq.broker import Consumer, MessageProxy
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound

from rmqpy import errors
from rmqpy._native import ReceivedMessage
from rmqpy.admin.client import Admin
from rmqpy.client.producer.producer import Producer
from rmqpy.client.simple.consumer_async import AsyncSimpleConsumer
from rmqpy.config.client import Address, ClientConfig
from rmqpy.contrib.work import BATCH_MAX, EXTEND_S, GET_S, purge

T = TypeVar("T")


class RocketMQBroker(dramatiq.Broker):
    """Sends messages of actors, and receives them in workers.

    ::

        dramatiq.set_broker(RocketMQBroker("127.0.0.1:9876"))

        @dramatiq.actor
        def greet(name): ...

        greet.send("Ada")
        greet.send_with_options(args=("Grace",), delay=10_000)

    A message of a dead worker is processed elsewhere after `visibility_timeout` seconds, which does not limit actors.
    """

    def __init__(
        self,
        namesrv: Address | ClientConfig | None = None,
        *,
        group: str = "dramatiq",
        visibility_timeout: float = 30.0,
        middleware: list[dramatiq.Middleware] | None = None,
    ) -> None:
        super().__init__(middleware=middleware)
        self.config = ClientConfig.of(namesrv)
        self.group = group
        self.visibility_timeout = visibility_timeout
        self._lock = threading.Lock()
        self._topics: set[str] = set()

    def declare_queue(self, queue_name: str) -> None:
        """Declare a queue. Its topic is created when it is used."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        """Return an iterator over the messages of a queue."""
        return _Consumer(self, self._topic(queue_name), prefetch, timeout / 1_000)

    def enqueue(self, message: dramatiq.Message[Any], *, delay: int | None = None) -> dramatiq.Message[Any]:
        """Send a message, which is due after `delay` milliseconds."""
        topic = self._topic(message.queue_name)
        self.emit_before("enqueue", message, delay)
        fields: dict[str, Any] = {} if delay is None else {"deliver_after": delay / 1_000}
        try:
            self._producer.send(topic, message.encode(), keys=message.message_id, **fields)
        except errors.RocketMQError as error:
            if error.retriable:
                raise ConnectionClosed(error) from error
            raise
        self.emit_after("enqueue", message, delay)
        return message

    def flush(self, queue_name: str) -> None:
        """Drop the messages of a queue that are due and not received."""
        self.call(purge(self._topic(queue_name), self.group, self.config))

    def flush_all(self) -> None:
        """Drop them in all declared queues."""
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Wait until all messages of a queue, delayed ones included, are processed. For tests."""
        topic = self._topic(queue_name)
        deadline = None if timeout is None else time.monotonic() + timeout / 1_000
        # Twice, because a delayed message is counted a moment after it was sent.
        found_empty = 0
        while (found_empty := found_empty + 1 if self._is_empty(topic) else 0) < 2:
            if deadline is not None and time.monotonic() > deadline:
                raise QueueJoinTimeout(queue_name)
            time.sleep(GET_S)

    def close(self) -> None:
        """Close the clients."""
        for name in ("_producer", "_admin"):
            if (client := self.__dict__.pop(name, None)) is not None:
                client.close()
        if (loop := self.__dict__.pop("_loop", None)) is not None:
            loop.call_soon_threadsafe(loop.stop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of consumers, and wait for it."""
        with self._lock:
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def _is_empty(self, topic: str) -> bool:
        # Timers first: a message that falls due between the questions counts for one of them.
        return not self._admin.pending_timers(topic) and not any(
            row.lag or row.in_flight for row in self._admin.known_progress(self.group, topic)
        )

    def _topic(self, queue_name: str) -> str:
        """The topic of a declared queue, which is created unless it exists."""
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        topic = queue_name.replace(".", "%2E")
        with self._lock:
            if topic not in self._topics:
                # Users without the permission to create topics rely on existing ones.
                with suppress(errors.AuthError):
                    self._admin.create_topic(topic, exist_ok=True)
                self._topics.add(topic)
        return topic

    @cached_property
    def _producer(self) -> Producer:
        return Producer(self.config)

    @cached_property
    def _admin(self) -> Admin:
        return Admin(self.config)

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="rmqpy-dramatiq", daemon=True).start()
        return loop


class _Proxy(MessageProxy):
    """A message of an actor, and its delivery."""

    def __init__(self, message: dramatiq.Message[Any], received: ReceivedMessage) -> None:
        super().__init__(message)
        self.received = received


class _Consumer(Consumer):
    """The messages of one queue."""

    def __init__(self, broker: RocketMQBroker, topic: str, prefetch: int, timeout: float) -> None:
        self._broker = broker
        self._topic = topic
        self._prefetch = prefetch
        self._timeout = timeout
        self._held = 0
        self._ready: deque[ReceivedMessage] = deque()
        self._room = threading.Condition()
        self._consumer: AsyncSimpleConsumer | None = None

    def ack(self, message: MessageProxy) -> None:
        """Acknowledge a message."""
        self._settle("ack", message)

    def nack(self, message: MessageProxy) -> None:
        """Make a message a dead letter."""
        self._settle("dead_letter", message)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Give messages back."""
        for message in messages:
            self._settle("nack", message)

    def __next__(self) -> MessageProxy | None:
        while True:
            if self._ready:
                received = self._ready.popleft()
                try:
                    return _Proxy(dramatiq.Message.decode(received.body), received)
                except (dramatiq.errors.DecodeError, KeyError, TypeError):
                    self._call("dead_letter", received)
                    self._release()
                    continue
            with self._room:
                count = min(self._prefetch - self._held, BATCH_MAX)
                if count <= 0:
                    self._room.wait(self._timeout)
                    return None
            found = self._receive(count)
            if not found:
                return None
            with self._room:
                self._held += len(found)
            self._ready.extend(found)

    def close(self) -> None:
        """Give received messages back, and close the client."""
        while self._ready:
            with suppress(ConnectionClosed):
                self._call("nack", self._ready.popleft())
        if self._consumer is not None:
            self._broker.call(self._consumer.close())

    def _receive(self, count: int) -> list[ReceivedMessage]:
        async def receive() -> list[ReceivedMessage]:
            if self._consumer is None:
                self._consumer = AsyncSimpleConsumer(
                    self._broker.group, self._broker.config, start_from="earliest", auto_extend=EXTEND_S
                )
                self._consumer.subscribe(self._topic)
            return await self._consumer.receive(
                count, invisible=self._broker.visibility_timeout, wait=self._timeout
            )

        try:
            return self._broker.call(receive())
        except errors.RocketMQError as error:
            raise ConnectionClosed(error) from error

    def _settle(self, how: str, message: MessageProxy) -> None:
        assert isinstance(message, _Proxy)
        self._call(how, message.received)
        self._release()

    def _release(self) -> None:
        with self._room:
            self._held -= 1
            self._room.notify()

    def _call(self, how: str, received: ReceivedMessage) -> None:
        assert self._consumer is not None
        try:
            self._broker.call(getattr(self._consumer, how)(received))
        except errors.RocketMQError as error:
            if error.retriable:
                raise ConnectionClosed(error) from error
            raise
