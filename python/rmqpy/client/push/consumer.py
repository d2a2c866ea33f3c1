"""`PushConsumer`: calls a handler for each message, in threads."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, overload

from rmqpy.client.consume_result import Reply
from rmqpy.client.group.allocation import Allocate, strategy
from rmqpy.client.group.checks import check_group, check_start
from rmqpy.client.group.loop_thread import LoopThread
from rmqpy.client.group.offset_store import OffsetStore
from rmqpy.client.group.rebalance import Rebalance
from rmqpy.client.interceptors import ConsumerInterceptor, around
from rmqpy.client.lifetime.client import Lifetime
from rmqpy.client.observers import EVERYWHERE
from rmqpy.client.push.engine import Engine
from rmqpy.client.push.handlers import (
    ConsumerStats,
    HandlerAnswer,
    MessageHandler,
    check_callable,
    check_callback,
)
from rmqpy.client.push.options import PushOptions
from rmqpy.client.push.reply import REPLY_S
from rmqpy.client.push.worker_pool import ThreadWorkerPool, WorkerPool
from rmqpy.config.arguments import check_types
from rmqpy.config.client import Address, ClientConfig, seconds
from rmqpy.config.ends import End
from rmqpy.message import Body, Filter, MessageQueue, ReceivedMessage

if TYPE_CHECKING:
    from rmqpy.client.codecs.codec import Codec
    from rmqpy.client.trace.consumer import ConsumerTrace

HandlerT = TypeVar("HandlerT", bound=MessageHandler)
#: A handler of a consumer with a codec, whose parameters are read from its annotations.
DecodingHandler = Callable[..., HandlerAnswer | Awaitable[HandlerAnswer]]
DecodingT = TypeVar("DecodingT", bound=DecodingHandler)
R = TypeVar("R")

#: Default time that `close` gives running handlers.
CLOSE_S: Final = 30.0
#: The interval at which `run` checks whether to end.
LOOK_S: Final = 0.2


class PushConsumerBase(Lifetime, ABC):
    """The settings, handlers and statistics of both push consumers."""

    _NOUN = "consumer"
    #: True if callbacks may be coroutine functions.
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
        """Times are in seconds.

        `ordered`: handle each queue's messages one after the other. `broadcast`: every member gets every message.
        `start_from`: where a group without progress in a topic begins; queues that appear later begin at their first
        message. `workers`: handlers that run concurrently. `batch_size`: more than 1 passes lists to the handler.
        `max_attempts`: deliveries before a message becomes a dead letter; by default the group's setting, 16 retries,
        or unlimited if ordered; a group with `retry_queues=0` has neither retries nor dead letters. `consume_timeout`:
        a handler that runs longer has failed. `prefetch_messages`, `prefetch_bytes`: bounds of the messages buffered
        per queue. `allocate`: the allocation strategy, `average`, `circle`, `consistent-hash` or a function. `suspend`:
        pause of an ordered queue after a failure. `interceptors` see each call of a handler. `trace` records messages
        in RocketMQ's trace topic, or in the topic of this name, in the background. `instance`: name of this member;
        broadcast members on one machine need different ones, because `offset_folder` keeps progress by instance.
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
            from rmqpy.client.producer.producer import open_send
            from rmqpy.client.trace.consumer import ConsumerTrace

            self._trace = ConsumerTrace(self.config, trace, group, options.consume_timeout, open_send)
            self._interceptors = (*self._interceptors, self._trace)
        self._pool = self._make_pool(workers)
        self._engine = Engine(options, self._pool, self._notify)
        self.is_closed = False

    @overload
    def on(
        self, topic: str, tags: Filter = "*", handler: MessageHandler | None = None
    ) -> Callable[[HandlerT], HandlerT]: ...
    @overload
    def on(
        self, topic: str, tags: Filter = "*", handler: DecodingHandler | None = None, *, codec: Codec
    ) -> Callable[[DecodingT], DecodingT]: ...
    def on(
        self,
        topic: str,
        tags: Filter = "*",
        handler: Callable[..., Any] | None = None,
        *,
        codec: Codec | None = None,
    ) -> Callable[..., Any]:
        """Call `handler`, or the decorated function, for messages of `topic` with one of the tags `"paid || refunded"`,
        or that match `rmqpy.sql("price > 10")`. Works while the consumer runs, too; the last call for a topic wins.

        With a `codec` the handler's annotations say what it gets: `ReceivedMessage`, `bytes` and `str` the message and
        its body, `Annotated[int, rmqpy.Property("size")]` a property, and any other type the decoded body. A message
        that cannot be decoded becomes a dead letter.

        Raises `TypeError` for an unusable handler: without a codec it must take one argument, and it may be a coroutine
        function only in `AsyncPushConsumer`.
        """

        def put(handler: Callable[..., Any]) -> Callable[..., Any]:
            self._check_open()
            check_types(topic=(topic, str), tags=(tags, Filter))
            called = handler
            if codec is None:
                check_callback(handler, self._engine.handlers.argument, may_await=self._MAY_AWAIT)
            else:
                check_callable(handler, self._engine.handlers.argument, may_await=self._MAY_AWAIT)
                # Few consumers have a codec.
                from rmqpy.client.push.decoding import decoding

                called = decoding(handler, codec, self._engine.handlers.batch_size)
            self._engine.put(topic, tags, around(self._interceptors, called))
            if self._is_started:
                self._resubscribe(topic)
            return handler

        if handler is not None:
            put(handler)
        return put

    def off(self, topic: str) -> None:
        """Stop reading `topic`; handlers finish their current messages."""
        self._check_open()
        self._engine.remove(topic)
        if self._is_started:
            self._resubscribe(topic)

    @property
    def has_failed(self) -> bool:
        """Whether a permanent failure, which was logged, has stopped the consumer. `wait` raises it."""
        return self._engine.failure is not None

    def stats(self) -> ConsumerStats:
        """Return the totals so far."""
        return self._engine.stats()

    def queues(self) -> frozenset[MessageQueue]:
        """Return the queues this member owns."""
        return self._engine.queues()

    @property
    def dropped_traces(self) -> int:
        """Trace records that were dropped: the queue was full, or no broker accepted them."""
        return 0 if self._trace is None else self._trace.dispatcher.dropped

    def _close_trace(self) -> None:
        """Send the remaining trace records after the last handler."""
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
            raise RuntimeError("the consumer has already been started")


class PushConsumer(PushConsumerBase):
    """Calls a handler for each message, from several threads.

    ::

        consumer = rmqpy.PushConsumer("billing", "127.0.0.1:9876")

        @consumer.on("orders", "paid || refunded")
        def handle(message):
            print(message.text())

        consumer.run()              # until Ctrl-C or SIGTERM; the second one does not wait for handlers

    A handler that returns completes its message. Raising, or returning `False` or `ConsumeResult.RETRY`, has it
    delivered again, by default after 10 s and then at growing intervals, and after 16 retries as a dead letter.
    `Retry(after=60)` sets the delay, `ConsumeResult.DISCARD` drops the message, and `Reply(body)` answers a request.
    The error is logged, or written to stderr if logging is not configured, and stored in the dead letter's property
    `CONSUME_ERROR`. A crash repeats messages and loses none, so handlers must tolerate a message twice.
    """

    _thread: LoopThread
    _is_running = False
    #: The thread that runs `on_rebalance`.
    _notified: threading.Thread | None = None

    def start(self) -> Self:
        """Join the group and start in the background. Raises if no name server answers, or a broker refuses."""
        self._check_startable()
        self._thread = LoopThread(f"rmqpy-{self.group}", self._serve)
        self._is_started = True
        try:
            self._thread.start()
            self._is_running = True
        except BaseException:
            self.is_closed = True
            self._thread.cancel()
            raise
        return self

    def run(self) -> None:
        """Start, run until SIGINT, SIGTERM or `close`, then drain and commit. Raises a permanent failure."""
        # Not an `Event`, whose lock the interrupted thread may hold.
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
        """Wait until the consumer is closed; return False after `timeout` seconds. Raises the permanent failure that
        stopped it, also if it is closed already."""
        limit = None if timeout is None else seconds(timeout)
        self._raise_failure()
        self._check_running()
        self._thread.join(limit)
        self._raise_failure()
        return self.is_closed

    def pause(self, *queues: MessageQueue) -> None:
        """Stop fetching these queues, or all, until `resume`; fetched messages are still handled."""
        self._call(lambda: self._engine.pause(queues, True))

    def resume(self, *queues: MessageQueue) -> None:
        """Resume these queues, or all."""
        self._call(lambda: self._engine.pause(queues, False))

    def reply(
        self,
        message: ReceivedMessage,
        body: Body,
        *,
        properties: Mapping[str, str] | None = None,
        timeout: float | timedelta = REPLY_S,
    ) -> None:
        """Answer a request later than its handler, or out of a batch. Waits until the requester has the reply. A
        requester gets the first of several replies.

        Raises `ValueError` for a message that is not a request, `BrokerError` if the requester is gone, and the error
        that prevented delivery within `timeout` seconds.
        """
        limit, reply = seconds(timeout), Reply(body, properties)
        self._check_running()
        self._submit(self._engine.reply(message, reply, limit)).result()

    def close(self, timeout: float | timedelta = CLOSE_S) -> None:
        """Start no more handlers, wait up to `timeout` seconds for running ones, commit, leave the group. Idempotent.

        A handler or `on_rebalance` may call it; it does not wait then.
        """
        limit = seconds(timeout)
        if not self._is_started or self._is_forked:
            self.is_closed = True
            return
        is_inside = self._pool.has_caller() or self._notified is threading.current_thread()
        # A callback cannot wait for the consumer's end, so the consumer is not closed yet.
        self.is_closed |= not is_inside
        if is_inside or self._is_running:
            self._thread.call(partial(self._engine.begin_close, limit))
        else:
            # The consumer was never started, or another thread is starting it.
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
            # The caller of `start` was interrupted at the last moment.
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
        # It runs even if its caller stops waiting.
        ended.set_running_or_notify_cancel()

        def notify() -> None:
            self._notified = threading.current_thread()
            try:
                on_rebalance(change)
            except Exception as error:
                ended.set_exception(error)
            except BaseException as error:
                # The exception must not end the consumer's loop.
                ended.set_exception(RuntimeError(f"on_rebalance raised {error!r}"))
            else:
                ended.set_result(None)
            finally:
                self._notified = None

        # A daemon thread outside the loop's executor, whose shutdown would wait for a stuck callback.
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
    """Have SIGINT and SIGTERM call `heed` in the main thread: the first signal asks for an orderly end, the second
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
