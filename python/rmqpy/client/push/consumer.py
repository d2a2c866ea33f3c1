"""`PushConsumer`: calls a handler for each message, in threads of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

from rmqpy.client.allocation import Allocate, strategy
from rmqpy.client.checks import check_group, check_start
from rmqpy.client.group.offset_store import OffsetStore
from rmqpy.client.group.rebalance import Rebalance
from rmqpy.client.interceptors import ConsumerInterceptor, around
from rmqpy.client.lifetime import Lifetime
from rmqpy.client.loop_thread import LoopThread
from rmqpy.client.observers import EVERYWHERE
from rmqpy.client.push.engine import Engine
from rmqpy.client.push.handlers import ConsumerStats, MessageHandler, check_callback
from rmqpy.client.push.options import PushOptions
from rmqpy.client.push.reply import REPLY_S, Reply
from rmqpy.client.push.worker_pool import ThreadWorkerPool, WorkerPool
from rmqpy.config.arguments import check_types
from rmqpy.config.client import Address, ClientConfig, seconds
from rmqpy.config.ends import End
from rmqpy.message import Body, Filter, MessageQueue, ReceivedMessage

if TYPE_CHECKING:
    from rmqpy.client.consumer_trace import ConsumerTrace

HandlerT = TypeVar("HandlerT", bound=MessageHandler)
R = TypeVar("R")

#: Time that `close` gives handlers at work.
CLOSE_S: Final = 30.0
#: `run` looks for a reason to end so often.
LOOK_S: Final = 0.2


class PushConsumerBase(Lifetime, ABC):
    """Settings, handlers and statistics of both push consumers."""

    _NOUN = "consumer"
    #: Whether callbacks may be coroutine functions.
    _MAY_AWAIT: ClassVar[bool] = False
    _is_started = False

    def __init__(
        self,
        group: str,
        namesrv: Address | ClientConfig | None = None,
        *,
        ordered: bool = False,
        broadcast: bool = False,
        start_from: End | datetime = "latest",
        workers: int = 8,
        batch_size: int = 1,
        max_attempts: int | None = None,
        consume_timeout: float | timedelta = 900.0,
        prefetch_messages: int = 1000,
        prefetch_bytes: int = 100 << 20,
        allocate: str | Allocate = "average",
        suspend: float | timedelta = 1.0,
        on_rebalance: Callable[[Rebalance], Any] | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        trace: bool | str = False,
        instance: str | None = None,
        offset_folder: str | os.PathLike[str] | None = None,
        offset_store: OffsetStore | None = None,
    ) -> None:
        """Times are seconds.

        `ordered`: each queue's messages one after the other. `broadcast`: every member gets every message.
        `start_from`: where a group begins in a topic in which it has no progress; queues that appear later begin at
        their first message. `workers`: handlers at work at a time.
        `batch_size`: more than 1 hands lists to the handler. `max_attempts`: deliveries before a message becomes a
        dead letter; without it the group's setting, 16 retries, or in order none; a group with `retry_queues=0` has
        neither retries nor dead letters. `consume_timeout`: a handler at
        work for longer has failed. `prefetch_messages`, `prefetch_bytes`: what may lie here of each queue.
        `allocate`: how members share queues, `average`, `circle`, `consistent-hash` or a function. `suspend`: pause
        of an ordered queue after a failure. `interceptors` see each call of a handler. `trace`: note each in RocketMQ's
        topic of traces, or the one of that name, on a thread of its own. `instance`: name of this member; broadcast
        members of one machine need one each, for `offset_folder` keeps their progress by it.
        `offset_store` keeps progress instead of that folder, or of the brokers.
        """
        check_types(
            group=(group, str),
            ordered=(ordered, bool),
            broadcast=(broadcast, bool),
            instance=(instance, str | None),
            trace=(trace, bool | str),
        )
        check_group(group)
        start_from = check_start(start_from)
        if on_rebalance is not None:
            check_callback(on_rebalance, "the Rebalance", may_await=self._MAY_AWAIT)
        super().__init__(namesrv)
        self.group = group
        options = PushOptions(
            group=group,
            config=self.config,
            ordered=ordered,
            broadcast=broadcast,
            start_from=start_from,
            workers=workers,
            batch_size=batch_size,
            max_attempts=max_attempts,
            consume_timeout=seconds(consume_timeout, "consume_timeout"),
            prefetch_messages=prefetch_messages,
            prefetch_bytes=prefetch_bytes,
            allocate=strategy(allocate),
            suspend=seconds(suspend, "suspend"),
            instance=instance,
            offset_folder=None if offset_folder is None else Path(offset_folder),
            offset_store=offset_store,
        )
        self._on_rebalance = on_rebalance
        self._interceptors = tuple(interceptors)
        self._interceptors += tuple(each.calls(self.config, group, broadcast) for each in EVERYWHERE)
        self._trace: ConsumerTrace | None = None
        if trace:
            from rmqpy.client.consumer_trace import ConsumerTrace

            self._trace = ConsumerTrace(self.config, trace, group, options.consume_timeout)
            self._interceptors = (*self._interceptors, self._trace)
        self._pool = self._make_pool(workers)
        self._engine = Engine(options, self._pool, self._notify)
        self.is_closed = False

    def on(
        self,
        topic: str,
        tags: Filter = "*",
        handler: MessageHandler | None = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """Call `handler`, or the function this decorates, for messages of `topic` that have one of the tags:
        `"paid || refunded"`, or match `rmqpy.sql("price > 10")`. Works while the consumer runs, too; the last call for
        a topic wins.

        Raises `TypeError` for a handler that cannot work: it takes one argument, and is a coroutine function only where
        something awaits it, in `AsyncPushConsumer`.
        """

        def put(handler: HandlerT) -> HandlerT:
            self._check_open()
            check_types(topic=(topic, str), tags=(tags, Filter))
            check_callback(handler, self._engine.handlers.argument, may_await=self._MAY_AWAIT)
            self._engine.put(topic, tags, around(self._interceptors, handler))
            if self._is_started:
                self._resubscribe(topic)
            return handler

        if handler is not None:
            put(handler)
        return put

    def off(self, topic: str) -> None:
        """Read `topic` no longer; messages at their handler are finished."""
        self._check_open()
        self._engine.remove(topic)
        if self._is_started:
            self._resubscribe(topic)

    def stats(self) -> ConsumerStats:
        """Totals so far."""
        return self._engine.stats()

    def queues(self) -> frozenset[MessageQueue]:
        """The queues this member owns now."""
        return self._engine.queues()

    @property
    def dropped_traces(self) -> int:
        """Notes of the message trace that were dropped: too many waited, or no broker took them."""
        return 0 if self._trace is None else self._trace.dispatcher.dropped

    def _close_trace(self) -> None:
        """Let notes of the trace leave, behind the last handler."""
        if self._trace is not None:
            self._trace.dispatcher.close()

    @property
    def _state(self) -> str:
        return "closed" if self.is_closed else "running" if self._is_started else "not started"

    @property
    def _is_left_open(self) -> bool:
        return self._is_started and not self.is_closed

    def _release(self) -> None:
        self._engine.let_go()

    @abstractmethod
    def _make_pool(self, workers: int) -> WorkerPool[Any]: ...

    @abstractmethod
    async def _notify(self, change: Rebalance) -> None: ...

    @abstractmethod
    def _resubscribe(self, topic: str) -> None: ...

    def _check_running(self) -> None:
        self._check_open()
        if not self._is_started:
            raise RuntimeError("the consumer was not started")

    def _check_startable(self) -> None:
        self._check_open()
        if self._is_started:
            raise RuntimeError("the consumer was started already")


class PushConsumer(PushConsumerBase):
    """Calls a handler for each message, from several threads.

    ::

        consumer = rmqpy.PushConsumer("billing", "127.0.0.1:9876")

        @consumer.on("orders", "paid || refunded")
        def handle(message):
            print(message.text())

        consumer.run()              # until Ctrl-C or SIGTERM; a second one waits for no handler

    A handler that returns has done its message. Raising, or returning `False` or `ConsumeResult.RETRY`, has it
    delivered again, by default after 10 s, then ever later, and after 16 retries as a dead letter; `Retry(after=60)`
    sets the delay; `ConsumeResult.DISCARD` drops it; `Reply(body)` answers a request. The error is logged, or written
    to stderr where logging is not configured, and is the property `CONSUME_ERROR` of the dead letter. A crash repeats
    messages and loses none: handlers must tolerate a message twice.
    """

    _thread: LoopThread
    _is_running = False
    #: The thread that is in `on_rebalance`.
    _notified: threading.Thread | None = None

    def start(self) -> Self:
        """Join the group and begin, in the background. Raises when no name server answers, or a broker refuses."""
        self._check_startable()
        self._thread = LoopThread(f"rmqpy-{self.group}", self._serve)
        self._is_started = True
        try:
            self._thread.start()
        except BaseException:
            self.is_closed = True
            raise
        self._is_running = True
        return self

    def run(self) -> None:
        """Start, go on until SIGINT, SIGTERM or `close`, then drain and commit. Raises what keeps it from going on."""
        # No `Event`: its lock may be held by the very thread that a signal interrupts.
        is_asked = False

        def heed() -> None:
            nonlocal is_asked
            if not is_asked:
                is_asked = True
            elif self._is_running:
                self._thread.call(self._engine.hurry)
            else:
                raise KeyboardInterrupt

        with heeding_signals(heed):
            with self:
                while not is_asked and not self.is_closed and self._engine.failure is None:
                    time.sleep(LOOK_S)
            self._raise_failure()

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Until the consumer is closed; False when `timeout` seconds passed first. Raises what keeps it from
        going on, also when that has closed it already."""
        limit = None if timeout is None else seconds(timeout)
        self._raise_failure()
        self._check_running()
        self._thread.join(limit)
        self._raise_failure()
        return self.is_closed

    def pause(self, *queues: MessageQueue) -> None:
        """Fetch nothing more of these queues, or of all, until `resume`; what lies here is still handled."""
        self._call(lambda: self._engine.pause(queues, True))

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues, or with all."""
        self._call(lambda: self._engine.pause(queues, False))

    def reply(
        self,
        message: ReceivedMessage,
        body: Body,
        *,
        properties: Mapping[str, str] | None = None,
        timeout: float | timedelta = REPLY_S,
    ) -> None:
        """Answer a request, when its handler has not: later, or of a batch. Waits until the requester has the reply; of
        several it gets the first.

        Raises `ValueError` for a message that is no request, `BrokerError` where its requester is gone, and what kept
        the reply from the brokers within `timeout` seconds.
        """
        limit, reply = seconds(timeout), Reply(body, properties)
        self._check_running()
        self._submit(self._engine.reply(message, reply, limit)).result()

    def close(self, timeout: float | timedelta = CLOSE_S) -> None:
        """Begin nothing more, let handlers at work finish for `timeout` seconds, commit, leave the group. Idempotent.

        A handler, or `on_rebalance`, may call it: then it does not wait.
        """
        limit = seconds(timeout)
        if not self._is_started or self._is_forked:
            self.is_closed = True
            return
        is_inside = self._pool.has_caller() or self._notified is threading.current_thread()
        # What is called by the consumer cannot wait for its end, nor say that it has ended.
        self.is_closed |= not is_inside
        if is_inside or self._is_running:
            self._thread.call(partial(self._engine.begin_close, limit))
        else:
            # It is being started by another thread, or was not.
            self._thread.cancel()
        if not is_inside:
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _serve(self, ready: Callable[[], None]) -> None:
        await self._engine.start()
        ready()
        try:
            await self._engine.wait()
            if self._engine.failure is not None:
                await self._engine.close(CLOSE_S)
        except asyncio.CancelledError:
            # Whoever started it was interrupted at the last moment.
            await self._engine.close(0.0)
            raise
        finally:
            self._close_trace()
            self.is_closed = True

    def _make_pool(self, workers: int) -> WorkerPool[Any]:
        return ThreadWorkerPool(workers, f"rmqpy-{self.group}-handler")

    async def _notify(self, change: Rebalance) -> None:
        on_rebalance = self._on_rebalance
        if on_rebalance is None:
            return
        ended: Future[None] = Future()
        # It runs, whether or not its end is still waited for.
        ended.set_running_or_notify_cancel()

        def notify() -> None:
            self._notified = threading.current_thread()
            try:
                on_rebalance(change)
            except Exception as error:
                ended.set_exception(error)
            except BaseException as error:
                # It is not to end the consumer's loop.
                ended.set_exception(RuntimeError(f"on_rebalance raised {error!r}"))
            else:
                ended.set_result(None)
            finally:
                self._notified = None

        # A daemon, and not of the loop's executor, whose end would wait for one that is stuck.
        threading.Thread(target=notify, name=f"rmqpy-{self.group}-rebalance", daemon=True).start()
        await asyncio.wrap_future(ended)

    def _resubscribe(self, topic: str) -> None:
        self._submit(self._engine.resubscribe(topic)).result()

    def _call(self, work: Callable[[], None]) -> None:
        async def call() -> None:
            work()

        self._check_running()
        self._submit(call()).result()

    def _submit(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        return self._thread.submit(work)

    def _raise_failure(self) -> None:
        if self._engine.failure is not None:
            raise self._engine.failure


@contextmanager
def heeding_signals(heed: Callable[[], None]) -> Iterator[None]:
    """Have SIGINT and SIGTERM call `heed`, where this is the main thread: the first asks for an orderly end, the second
    for a fast one, and the third interrupts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    left = 2

    def called(number: int, frame: FrameType | None) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        heed()

    before = {number: signal.signal(number, called) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
