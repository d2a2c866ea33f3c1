"""`AsyncPushConsumer`: calls a handler for each message, in tasks of an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self

from rmqpy.client.group.rebalance import Rebalance
from rmqpy.client.push.consumer import CLOSE_S, PushConsumerBase
from rmqpy.client.push.reply import REPLY_S, Reply
from rmqpy.client.push.worker_pool import TaskWorkerPool, WorkerPool
from rmqpy.config.client import seconds
from rmqpy.message import Body, MessageQueue, ReceivedMessage


class AsyncPushConsumer(PushConsumerBase):
    """`PushConsumer` for an event loop: handlers are coroutine functions, or functions that do not block, and
    `workers` is how many of them are under way at a time.

    ::

        consumer = rmqpy.AsyncPushConsumer("billing", "127.0.0.1:9876")

        @consumer.on("orders")
        async def handle(message):
            await store(message.json())

        async with consumer:
            await consumer.wait()
    """

    _MAY_AWAIT = True
    #: The task that is in `on_rebalance`.
    _notified: asyncio.Task[Any] | None = None

    async def start(self) -> Self:
        """As `PushConsumer.start`."""
        self._check_startable()
        self._is_started = True
        self._loop = asyncio.get_running_loop()
        try:
            await self._engine.start()
        except BaseException:
            self.is_closed = True
            raise
        return self

    async def wait(self) -> None:
        """Until the consumer is closed. Raises what keeps it from going on."""
        await self._engine.wait()
        if self._engine.failure is not None:
            failure = self._engine.failure
            await self.close()
            raise failure

    def pause(self, *queues: MessageQueue) -> None:
        """As `PushConsumer.pause`."""
        self._check_running()
        self._engine.pause(queues, True)

    def resume(self, *queues: MessageQueue) -> None:
        """As `PushConsumer.resume`."""
        self._check_running()
        self._engine.pause(queues, False)

    async def reply(
        self,
        message: ReceivedMessage,
        body: Body,
        *,
        properties: Mapping[str, str] | None = None,
        timeout: float | timedelta = REPLY_S,  # noqa: ASYNC109 - it bounds the attempts, too
    ) -> None:
        """As `PushConsumer.reply`."""
        self._check_running()
        await self._engine.reply(message, Reply(body, properties), seconds(timeout))

    async def close(self, timeout: float | timedelta = CLOSE_S) -> None:  # noqa: ASYNC109 - handlers get it
        """As `PushConsumer.close`."""
        if self.is_closed or not self._is_started or self._is_forked:
            self.is_closed = True
            return
        self.is_closed = True
        if self._pool.has_caller() or self._notified is asyncio.current_task():
            # What is called by the consumer cannot wait for its end.
            self._closing = asyncio.create_task(self._end(seconds(timeout)))
        else:
            await self._end(seconds(timeout))

    async def _end(self, timeout_s: float) -> None:
        await self._engine.close(timeout_s)
        if self._trace is not None:
            await asyncio.to_thread(self._close_trace)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _make_pool(self, workers: int) -> WorkerPool[Any]:
        return TaskWorkerPool(workers)

    async def _notify(self, change: Rebalance) -> None:
        if self._on_rebalance is not None:
            self._notified = asyncio.current_task()
            try:
                told = self._on_rebalance(change)
                if inspect.isawaitable(told):
                    await told
            finally:
                self._notified = None

    def _resubscribe(self, topic: str) -> None:
        self._changing = self._loop.create_task(self._engine.resubscribe(topic))
