"""`AsyncPullConsumer`: reading by offset from an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Self, TypeVar

from rmqpy import errors
from rmqpy._native import ArrowBatch, Columns, ReceivedMessage
from rmqpy.client.consumer_base import PullConsumerBase
from rmqpy.client.cursor import Place
from rmqpy.client.group.rebalance import Rebalance
from rmqpy.config.client import seconds
from rmqpy.message import MessageQueue
from rmqpy.remoting.client import LoopCaller

R = TypeVar("R")


class AsyncPullConsumer(PullConsumerBase):
    """Reads queues by offset from an event loop: `PullConsumer` with coroutines, and the same promises.

    ::

        async with rmqpy.AsyncPullConsumer("billing", "127.0.0.1:9876") as consumer:
            await consumer.assign(await consumer.queues("orders"))
            async for message in consumer:
                print(message.text())

    For one task; a second one gets `RuntimeError`.
    """

    def _begin(self) -> None:
        self._is_busy = False

    async def queues(self, topic: str) -> list[MessageQueue]:
        """As `PullConsumer.queues`."""
        return await self._run(self._now().queues(topic))

    async def subscribe(
        self,
        topic: str,
        tags: str = "*",
        *,
        on_rebalance: Callable[[Rebalance], Awaitable[object] | object] | None = None,
    ) -> None:
        """As `PullConsumer.subscribe`; `on_rebalance` may be a coroutine function."""

        async def notify(change: Rebalance) -> None:
            assert on_rebalance is not None
            self._is_busy = False
            try:
                told = on_rebalance(change)
                if inspect.isawaitable(told):
                    await told
            finally:
                self._is_busy = True

        subscriber = self._join(topic, notify if on_rebalance else None)
        await asyncio.to_thread(subscriber.put, topic, tags)

    async def assign(self, queues: Iterable[MessageQueue], tags: str = "*") -> None:
        """As `PullConsumer.assign`."""
        self._check_unsubscribed()
        await self._run(self._now().assign(queues, tags))

    async def poll(
        self,
        timeout: float | timedelta = 1.0,  # noqa: ASYNC109 - nothing is cancelled when it passes
        max_messages: int | None = None,
    ) -> list[ReceivedMessage]:
        """As `PullConsumer.poll`. Cancelling it loses no message."""
        return await self._run(self._now().poll(seconds(timeout), max_messages))

    async def arrow(
        self,
        timeout: float | timedelta = 1.0,  # noqa: ASYNC109
        columns: Columns | None = None,
    ) -> ArrowBatch:
        """As `PullConsumer.arrow`."""
        return await self._run(self._now().arrow(columns or Columns(), seconds(timeout)))

    async def seek(self, queue: MessageQueue, offset: Place) -> None:
        """As `PullConsumer.seek`."""
        await self._run(self._now().seek(queue, offset))

    async def committed(self, queue: MessageQueue) -> int | None:
        """As `PullConsumer.committed`."""
        return await self._run(self._now().committed(queue))

    async def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        """As `PullConsumer.offsets`."""
        return await self._run(self._now().offsets(queue))

    async def offset_at(self, queue: MessageQueue, when: datetime) -> int:
        """As `PullConsumer.offset_at`."""
        return await self._run(self._now().offset_at(queue, when))

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """As `PullConsumer.commit`."""
        await self._run(self._now().commit(offsets))

    async def close(self) -> None:
        """As `PullConsumer.close`."""
        if not self.is_closed and not self._is_forked:
            core = self._now()
            self.is_closed = True
            try:
                await core.close()
            finally:
                self._caller.close()

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Messages as they come, until `close`."""
        with suppress(errors.ClosedError):
            while True:
                for message in await self.poll():
                    yield message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @cached_property
    def _caller(self) -> LoopCaller:
        # In the loop that uses the consumer first.
        return LoopCaller(self._cluster.client)

    async def _run(self, work: Coroutine[Any, Any, R]) -> R:
        if self._is_busy:
            work.close()
            raise RuntimeError("an AsyncPullConsumer is for one task, and another one is using it")
        self._is_busy = True
        try:
            return await work
        finally:
            self._is_busy = False
