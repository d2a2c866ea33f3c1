"""`AsyncPullConsumer`: reads by offset from an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import cached_property, partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from rmqpy import errors
from rmqpy._native import ReceivedMessage
from rmqpy.client.group.rebalance import Rebalance
from rmqpy.client.lifetime.closing import Closing, check_loop, in_loop, is_elsewhere
from rmqpy.client.pull.consumer_base import PullConsumerBase, topics_of
from rmqpy.client.pull.cursor import Cursor
from rmqpy.config.arguments import check_types
from rmqpy.message import Filter
from rmqpy.remoting.client import LoopCaller

P = ParamSpec("P")
R = TypeVar("R")


def _suspending(
    work: Callable[Concatenate[Cursor, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[AsyncPullConsumer, P], Coroutine[Any, Any, R]]:
    """Return the method that runs this work of the cursor in the caller's task."""

    @wraps(work)
    async def method(self: AsyncPullConsumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._run(work(self._now(), *args, **kwargs))

    return method


class AsyncPullConsumer(PullConsumerBase):
    """Reads queues by offset from an event loop: `PullConsumer` with coroutines, and the same promises.

    ::

        async with rmqpy.AsyncPullConsumer("billing", "127.0.0.1:9876") as consumer:
            await consumer.subscribe("orders")
            async for message in consumer:
                print(message.text())

    For one task; a second one gets `RuntimeError`.
    """

    def _begin(self) -> None:
        self._is_busy = False
        self._closing = Closing()

    queues = _suspending(Cursor.queues)
    assign = _suspending(Cursor.assign)
    poll = _suspending(Cursor.poll)
    arrow = _suspending(Cursor.arrow)
    seek = _suspending(Cursor.seek)
    committed = _suspending(Cursor.committed)
    offsets = _suspending(Cursor.offsets)
    offset_at = _suspending(Cursor.offset_at)
    commit = _suspending(Cursor.commit)

    async def subscribe(
        self,
        topic: str | Iterable[str],
        tags: Filter = "*",
        *,
        on_rebalance: Callable[[Rebalance], Awaitable[object] | object] | None = None,
    ) -> None:
        """As `PullConsumer.subscribe`; `on_rebalance` may be a coroutine function."""

        async def notify(change: Rebalance) -> None:
            assert on_rebalance is not None
            self._is_busy = False
            try:
                notified = on_rebalance(change)
                if inspect.isawaitable(notified):
                    await notified
            finally:
                self._is_busy = True

        topics = topics_of(topic)
        check_types(tags=(tags, Filter), on_rebalance=(on_rebalance, Callable | None))
        self._check_loop()
        subscriber = self._join(topics, notify if on_rebalance else None)
        await asyncio.to_thread(subscriber.put, topics, tags)

    async def close(self) -> None:
        """As `PullConsumer.close`."""
        await self._close(is_committing=True)

    async def _close(self, *, is_committing: bool) -> None:
        if self._is_forked:
            return
        if is_elsewhere(self._own_loop) and not self.is_closed:
            if not self._caller.loop.is_closed():
                self._check_loop()
            self.is_closed = True
            self._release()
            return
        if not self.is_closed:
            core = self._now()
            self.is_closed = True
            self._closing.begin(partial(self._end, core, is_committing))
        if self._closing.has_begun:
            await self._closing.once(partial(self._end, self._core, is_committing))

    async def _end(self, core: Cursor, is_committing: bool) -> None:
        try:
            await core.close(is_committing=is_committing)
        finally:
            self._caller.close()
            if self._trace is not None:
                await asyncio.to_thread(self._close_trace)

    def _release(self) -> None:
        if self._own_loop is None:
            super()._release()
            return
        core, caller, trace = self._core, self._caller, self._trace

        def let_go() -> None:
            core.let_go()
            caller.close()

        in_loop(caller.loop, let_go)
        if trace is not None:
            trace.dispatcher.close(0.0)

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """As `PullConsumer.__iter__`."""
        with suppress(errors.ClosedError):
            while True:
                for message in self._core.one_by_one(await self.poll()):
                    yield message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._close(is_committing=kind is None)

    @cached_property
    def _caller(self) -> LoopCaller:
        # Called in the loop that first uses the consumer.
        return LoopCaller(self._cluster.client)

    @property
    def _own_loop(self) -> asyncio.AbstractEventLoop | None:
        caller: LoopCaller | None = self.__dict__.get("_caller")
        return None if caller is None else caller.loop

    def _check_loop(self) -> None:
        check_loop(self._own_loop, self._NOUN)

    async def _run(self, work: Coroutine[Any, Any, R]) -> R:
        if is_elsewhere(self._own_loop):
            work.close()
            self._check_loop()
        if self._is_busy:
            work.close()
            raise RuntimeError("an AsyncPullConsumer serves one task at a time, and another task is using it")
        self._is_busy = True
        try:
            return await work
        finally:
            self._is_busy = False
