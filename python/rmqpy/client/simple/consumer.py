"""`SimpleConsumer`: message by message, from a thread."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from rmqpy import errors
from rmqpy._native import ReceivedMessage
from rmqpy.client.simple.consumer_base import Deliveries, SimpleConsumerBase
from rmqpy.client.simple.extensions import Extensions
from rmqpy.client.simple.receiver import Receiver
from rmqpy.remoting.client import BlockingCaller, run

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    work: Callable[Concatenate[Deliveries, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SimpleConsumer, P], R]:
    """Return the method that runs this work in the caller's thread."""

    @wraps(work)
    def method(self: SimpleConsumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(work(self._now(), *args, **kwargs))

    return method


class SimpleConsumer(SimpleConsumerBase):
    """Takes messages one by one, and acknowledges each. For one thread; a second one gets `RuntimeError`.

    ::

        with rmqpy.SimpleConsumer("workers", "127.0.0.1:9876") as consumer:
            consumer.subscribe("jobs")
            for message in consumer:
                work(message.body)
                consumer.ack(message)

    Any number of consumers of a group share any number of queues. A received message is hidden from the other
    consumers. Unless it is acknowledged in time it is delivered again, to any of them, and becomes a dead letter after
    the group's `retryMaxTimes` (16). With `auto_extend` a thread keeps it hidden while the work takes longer.
    """

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._held_more = threading.Event()

    receive = _blocking(Deliveries.receive)
    ack = _blocking(Deliveries.ack)
    extend = _blocking(Deliveries.extend)
    nack = _blocking(Deliveries.nack)
    dead_letter = _blocking(Deliveries.dead_letter)

    def close(self) -> None:
        """Give back messages that were received but not returned, then close. Idempotent."""
        if not self.is_closed and not self._is_forked:
            receiver = self._receiver
            self.is_closed = True
            self._held_more.set()
            try:
                run(receiver.close())
            finally:
                self._cluster.release()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Yield messages as they arrive, until `close`; each is hidden for a minute."""
        with suppress(errors.ClosedError):
            while True:
                yield from self.receive(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _caller(self) -> BlockingCaller:
        return BlockingCaller(self._cluster.client)

    def _extend_messages(self, receiver: Receiver) -> None:
        extensions = receiver.extend_automatically(self._auto_extend, self._held_more.set)
        threading.Thread(
            target=_extend,
            args=(extensions, self._held_more, weakref.ref(self)),
            name="rmq-extend",
            daemon=True,
        ).start()

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        if not self._lock.acquire(blocking=False):
            work.close()
            raise RuntimeError("a SimpleConsumer is for one thread, and another one is using it")
        try:
            return run(work)
        finally:
            self._lock.release()


def _extend(
    extensions: Extensions, held_more: threading.Event, consumer: weakref.ReferenceType[SimpleConsumer]
) -> None:
    """Extend messages until the consumer is closed or forgotten."""
    while (owner := consumer()) is not None and not owner.is_closed:
        del owner
        held_more.clear()
        held_more.wait(run(extensions.extend_due()))
