"""`AsyncPushConsumer`: calls a handler for each message, in tasks of an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Self

from rmqpy.client.consume_result import Reply
from rmqpy.client.group.rebalance import Rebalance
from rmqpy.client.lifetime.closing import Closing, check_loop, is_elsewhere
from rmqpy.client.push.consumer import CLOSE_S, PushConsumerBase, heeding_signals
from rmqpy.client.push.reply import REPLY_S
from rmqpy.client.push.worker_pool import TaskWorkerPool, WorkerPool
from rmqpy.config.client import seconds
from rmqpy.message import Body, MessageQueue, ReceivedMessage


class AsyncPushConsumer(PushConsumerBase):
    """`PushConsumer` for an event loop: handlers are coroutine functions, or functions that do not block. `workers`
    bounds the handlers in progress.

    ::

        consumer = rmqpy.AsyncPushConsumer("billing", "127.0.0.1:9876")

        @consumer.on("orders")
        async def handle(message):
            await store(message.json())

        await consumer.run()        # until Ctrl-C or SIGTERM; the second one does not wait for handlers
    """

    _MAY_AWAIT = True
    _loop: asyncio.AbstractEventLoop | None = None
    #: The task that runs `on_rebalance`.
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

    async def run(self) -> None:
        """As `PushConsumer.run`. Outside the main thread, or if the program handles these signals itself, use
        `async with` and `wait`."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def heed() -> None:
            loop.call_soon_threadsafe(self._engine.hurry if stop.is_set() else stop.set)

        with heeding_signals(heed):
            async with self:
                waiting = (asyncio.create_task(stop.wait()), asyncio.create_task(self._engine.wait()))
                try:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in waiting:
                        task.cancel()
            if self._engine.failure is not None:
                raise self._engine.failure

    async def wait(self) -> None:
        """Wait until the consumer is closed. Raises the permanent failure that stopped it."""
        check_loop(self._loop, self._NOUN)
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
        limit, reply = seconds(timeout), Reply(body, properties)
        self._check_running()
        await self._engine.reply(message, reply, limit)

    async def close(self, timeout: float | timedelta = CLOSE_S) -> None:  # noqa: ASYNC109 - handlers get it
        """As `PushConsumer.close`."""
        limit = seconds(timeout)
        if not self._is_started or self._is_forked:
            self.is_closed = True
            return
        if is_elsewhere(self._loop):
            if self._loop is not None and not self._loop.is_closed():
                check_loop(self._loop, self._NOUN)
            self.is_closed = True
            self._engine.let_go()
            return
        self.is_closed = True
        if self._pool.has_caller() or self._notified is asyncio.current_task():
            # A callback cannot wait for the consumer's end.
            self._closing.begin(partial(self._end, limit))
        else:
            await self._closing.once(partial(self._end, limit))

    async def _end(self, timeout_s: float) -> None:
        try:
            await self._engine.close(timeout_s)
        finally:
            if self._trace is not None:
                await asyncio.to_thread(self._close_trace)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _make_pool(self, workers: int) -> WorkerPool[Any]:
        self._closing = Closing()
        return TaskWorkerPool(workers)

    def _check_open(self) -> None:
        super()._check_open()
        check_loop(self._loop, self._NOUN)

    async def _notify(self, change: Rebalance) -> None:
        if self._on_rebalance is not None:
            self._notified = asyncio.current_task()
            try:
                notified = self._on_rebalance(change)
                if inspect.isawaitable(notified):
                    await notified
            finally:
                self._notified = None

    def _resubscribe(self, topic: str) -> None:
        assert self._loop is not None, "it was started"
        self._changing = self._loop.create_task(self._engine.resubscribe(topic))
