"""`AsyncSimpleConsumer`: message by message, from an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from rmqpy import errors
from rmqpy._native import ReceivedMessage
from rmqpy.client.lifetime.closing import Closing, check_loop, in_loop
from rmqpy.client.simple.consumer_base import INVISIBLE_S, WAIT_S, Deliveries, SimpleConsumerBase
from rmqpy.client.simple.receiver import Receiver
from rmqpy.remoting.client import LoopCaller
from rmqpy.remoting.waiting import wait_at_most

P = ParamSpec("P")
R = TypeVar("R")


def _suspending(
    work: Callable[Concatenate[Deliveries, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[AsyncSimpleConsumer, P], Coroutine[Any, Any, R]]:
    """Return the method that runs this work in the caller's task."""

    @wraps(work)
    async def method(self: AsyncSimpleConsumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        check_loop(self._own_loop, self._NOUN)
        return await work(self._now(), *args, **kwargs)

    return method


class AsyncSimpleConsumer(SimpleConsumerBase):
    """Takes messages one by one from an event loop: `SimpleConsumer` with coroutines, and the same promises.

    ::

        async with rmqpy.AsyncSimpleConsumer("workers", "127.0.0.1:9876") as consumer:
            consumer.subscribe("jobs")
            async for message in consumer:
                await work(message.body)
                await consumer.ack(message)

    One task receives at a time; others may acknowledge meanwhile.
    """

    def _begin(self) -> None:
        self._receiving = asyncio.Lock()
        self._closing = Closing()
        self._extending: asyncio.Task[None] | None = None

    ack = _suspending(Deliveries.ack)
    extend = _suspending(Deliveries.extend)
    nack = _suspending(Deliveries.nack)
    dead_letter = _suspending(Deliveries.dead_letter)

    async def receive(
        self, max_messages: int = 16, *, invisible: float = INVISIBLE_S, wait: float = WAIT_S
    ) -> list[ReceivedMessage]:
        """As `SimpleConsumer.receive`."""
        check_loop(self._own_loop, self._NOUN)
        if self._receiving.locked():
            raise RuntimeError("another task receives with this AsyncSimpleConsumer")
        async with self._receiving:
            return await self._now().receive(max_messages, invisible=invisible, wait=wait)

    async def close(self) -> None:
        """As `SimpleConsumer.close`."""
        if self._is_forked:
            return
        if not self.is_closed:
            receiver = self._receiver
            self.is_closed = True
            self._closing.begin(lambda: self._end(receiver))
        if self._closing.has_begun:
            await self._closing.once(lambda: self._end(self._receiver))

    def _extend_messages(self, receiver: Receiver) -> None:
        held_more = asyncio.Event()
        extensions = receiver.extend_automatically(self._auto_extend, held_more.set)

        async def extend() -> None:
            while True:
                held_more.clear()
                pause = await extensions.extend_due()
                await wait_at_most(held_more, pause)

        self._extending = asyncio.get_running_loop().create_task(extend())

    async def _end(self, receiver: Receiver) -> None:
        if self._extending is not None:
            self._extending.cancel()
        try:
            await receiver.close()
        finally:
            self._caller.close()
            self._cluster.release()

    def _release(self) -> None:
        if self._own_loop is None:
            super()._release()
            return
        receiver, caller, cluster = self._receiver, self._caller, self._cluster
        extending = self._extending

        def let_go() -> None:
            if extending is not None:
                extending.cancel()
            receiver.let_go()
            caller.close()
            cluster.release()

        in_loop(caller.loop, let_go)

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """As `SimpleConsumer.__iter__`."""
        with suppress(errors.ClosedError):
            while True:
                for message in await self.receive(1):
                    yield message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @cached_property
    def _caller(self) -> LoopCaller:
        # Called in the loop that first uses the consumer.
        return LoopCaller(self._cluster.client)

    @property
    def _own_loop(self) -> asyncio.AbstractEventLoop | None:
        caller: LoopCaller | None = self.__dict__.get("_caller")
        return None if caller is None else caller.loop
