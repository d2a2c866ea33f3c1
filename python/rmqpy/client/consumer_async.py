"""`AsyncPullConsumer`: reading by offset from an event loop."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from rmqpy import errors
from rmqpy._native import ArrowBatch, Columns, ReceivedMessage
from rmqpy.client.cursor import AUTO_COMMIT_S, MAX_BATCH, Cursor, Place, PullConsumerBase
from rmqpy.client.group.offsets import StartFrom
from rmqpy.client.group.rebalance import Rebalance
from rmqpy.config.client import Address, ClientConfig, seconds
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

    def __init__(
        self,
        group: str,
        namesrv: Address | ClientConfig | None = None,
        *,
        auto_commit: bool | float = AUTO_COMMIT_S,
        start_from: StartFrom = "latest",
        max_batch: int = MAX_BATCH,
    ) -> None:
        """As `PullConsumer`."""
        super().__init__(group, namesrv, auto_commit, start_from, max_batch)
        self._caller: LoopCaller | None = None
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
        core = self._now()

        async def notify(change: Rebalance) -> None:
            assert on_rebalance is not None
            self._is_busy = False
            try:
                told = on_rebalance(change)
                if inspect.isawaitable(told):
                    await told
            finally:
                self._is_busy = True

        subscriber = self._join(core, topic, notify if on_rebalance else None)
        await asyncio.to_thread(subscriber.put, topic, tags)

    async def assign(self, queues: Iterable[MessageQueue], tags: str = "*") -> None:
        """As `PullConsumer.assign`."""
        self._check_free()
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

    def position(self, queue: MessageQueue) -> int:
        """As `PullConsumer.position`."""
        return self._now().position(queue)

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

    def assignment(self) -> frozenset[MessageQueue]:
        """As `PullConsumer.assignment`."""
        return self._now().assignment()

    def pause(self, *queues: MessageQueue) -> None:
        """As `PullConsumer.pause`."""
        self._now().pause(queues, True)

    def resume(self, *queues: MessageQueue) -> None:
        """As `PullConsumer.resume`."""
        self._now().pause(queues, False)

    async def close(self) -> None:
        """As `PullConsumer.close`."""
        if not self.is_closed and self._pid == os.getpid():
            core = self._now()
            self.is_closed = True
            try:
                await core.close()
            finally:
                if self._caller is not None:
                    self._caller.close()

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Messages as they come, until `close`."""
        with suppress(errors.ClosedError):
            while True:
                for message in await self.poll():
                    yield message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _now(self) -> Cursor:
        self._check_open()
        if self._core is not None:
            return self._core
        self._caller = LoopCaller(self._cluster.client)
        return self._begin(self._caller)

    async def _run(self, work: Coroutine[Any, Any, R]) -> R:
        if self._is_busy:
            work.close()
            raise RuntimeError("an AsyncPullConsumer is for one task, and another one is using it")
        self._is_busy = True
        try:
            return await work
        finally:
            self._is_busy = False
