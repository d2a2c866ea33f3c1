"""`PullConsumer` and `AsyncPullConsumer`: reading by offset, in threads and in event loops.

Owns positions and commits of the queues the user assigned; `fetcher` reads ahead. Both classes are faces of one
core, written once as coroutines. Invariant: a commit never passes what the caller has received.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from rmqpy import errors
from rmqpy._native import ArrowBatch, Call, Columns, ReceivedMessage
from rmqpy.client.config import Address, ClientConfig, seconds
from rmqpy.client.fetcher import Fetcher
from rmqpy.client.session import Session
from rmqpy.message import MessageQueue
from rmqpy.protocol import declare
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.offsets import (
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from rmqpy.remoting.client import BlockingCaller, Caller, LoopCaller, check_transport, read, run

log = logging.getLogger(__name__)

R = TypeVar("R")

MAX_BATCH: Final = 256
AUTO_COMMIT_S: Final = 5.0

#: Where a group begins in a queue it has never committed.
StartFrom = Literal["latest", "earliest"] | datetime
Place = int | Literal["begin", "end"] | datetime


class _Core:
    """One consumer over one caller. For one thread, or one task, at a time."""

    def __init__(
        self,
        session: Session,
        caller: Caller,
        group: str,
        auto_commit: bool | float,
        start_from: StartFrom,
        max_batch: int,
    ) -> None:
        self._session = session
        self._caller = caller
        self._group = group
        self._start_from = start_from
        self._max_batch = max_batch
        self._commit_every = AUTO_COMMIT_S if auto_commit is True else float(auto_commit)
        self._commit_at = time.monotonic() + self._commit_every
        self._committed: dict[MessageQueue, int] = {}
        self._commits: list[tuple[MessageQueue, UpdateConsumerOffset, str, Call]] = []
        self._fetcher = Fetcher(caller, session.routes, group)

    async def queues(self, topic: str) -> list[MessageQueue]:
        return list((await self._session.routes.subscribe(topic, self._caller)).readable)

    async def assign(self, queues: Iterable[MessageQueue], tags: str) -> None:
        known = self._fetcher.positions()
        positions = {
            queue: known[queue] if queue in known else await self._first_position(queue) for queue in queues
        }
        self._fetcher.assign(positions, tags)

    async def poll(self, timeout_s: float, messages_max: int | None) -> list[ReceivedMessage]:
        # What an earlier call returned counts as processed now.
        self._commit_if_due()
        return await self._fetcher.next(messages_max or self._max_batch, timeout_s)

    async def arrow(self, columns: Columns, timeout_s: float) -> ArrowBatch:
        self._commit_if_due()
        await self._fetcher.next_columns(columns, timeout_s)
        return columns.take()

    async def seek(self, queue: MessageQueue, place: Place) -> None:
        if isinstance(place, datetime):
            offset = await self.offset_at(queue, place)
        elif place == "begin":
            offset = (await self.offsets(queue))[0]
        elif place == "end":
            offset = (await self.offsets(queue))[1]
        elif isinstance(place, int) and place >= 0:
            offset = place
        else:
            raise ValueError(f"seek to an offset, 'begin', 'end' or a datetime, not to {place!r}")
        self._fetcher.seek(queue, offset)

    def position(self, queue: MessageQueue) -> int:
        return self._fetcher.position(queue)

    def assignment(self) -> frozenset[MessageQueue]:
        return frozenset(self._fetcher.positions())

    def pause(self, queues: Iterable[MessageQueue], is_paused: bool) -> None:
        self._fetcher.pause(queues, is_paused)

    async def committed(self, queue: MessageQueue) -> int | None:
        ask = QueryConsumerOffset(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        try:
            return (await self._ask(queue, ask)).offset
        except errors.BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        begin = await self._ask(queue, GetMinOffset(topic=queue.topic, queue_id=queue.queue_id))
        end = await self._ask(queue, GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id))
        return begin.offset, end.offset

    async def offset_at(self, queue: MessageQueue, when: datetime) -> int:
        ask = SearchOffsetByTimestamp(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=round(when.timestamp() * 1000)
        )
        return (await self._ask(queue, ask)).offset

    async def commit(self, offsets: Mapping[MessageQueue, int] | None) -> None:
        for queue, offset in (self._fetcher.positions() if offsets is None else offsets).items():
            if offsets is not None or self._committed.get(queue) != offset:
                await self._ask(queue, self._commitment(queue, offset))
                self._committed[queue] = offset

    async def close(self) -> None:
        try:
            if self._commit_every:
                await self.commit(None)
        finally:
            self._fetcher.close()
            self._session.release()

    # ---- pieces ----------------------------------------------------------------------------------------

    async def _first_position(self, queue: MessageQueue) -> int:
        committed = await self.committed(queue)
        if committed is not None:
            self._committed[queue] = committed
            return committed
        if isinstance(self._start_from, datetime):
            return await self.offset_at(queue, self._start_from)
        begin, end = await self.offsets(queue)
        return end if self._start_from == "latest" else begin

    async def _ask(self, queue: MessageQueue, ask: declare.Request[R]) -> R:
        route = await self._session.routes.subscribe(queue.topic, self._caller)
        address = route.reader(queue.broker)
        timeout = self._session.config.request_timeout
        try:
            return await self._caller.ask(address, ask, timeout=timeout)
        except errors.ConnectError:
            self._session.routes.doubt(queue.topic)
            raise

    def _commitment(self, queue: MessageQueue, offset: int) -> UpdateConsumerOffset:
        return UpdateConsumerOffset(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )

    def _commit_if_due(self) -> None:
        """Start commits that nobody waits for; what became of the last ones is looked at the next time."""
        if not self._commit_every or time.monotonic() < self._commit_at:
            return
        self._commit_at = time.monotonic() + self._commit_every
        for queue, ask, address, call in self._commits:
            try:
                check_transport(call, address)
                if call.done():
                    read(ask, call, address)
            except errors.RocketMQError as error:
                self._committed.pop(queue, None)
                log.warning("a commit of %s failed and is repeated: %s", queue, error)
        self._commits.clear()
        for queue, offset in self._fetcher.positions().items():
            if self._committed.get(queue) == offset:
                continue
            route = self._session.routes.cached(queue.topic, self._caller)
            if route is None:
                continue
            ask = self._commitment(queue, offset)
            sent = declare.encode(ask)
            address = route.reader(queue.broker)
            timeout_ms = round(self._session.config.request_timeout * 1000)
            call = self._session.client.call(address, ask.code, sent.ext, sent.body, timeout_ms=timeout_ms)
            self._commits.append((queue, ask, address, call))
            self._committed[queue] = offset


class _Face:
    """Life and death of both classes."""

    _core: _Core | None

    def __init__(
        self,
        group: str,
        namesrv: Address | ClientConfig | None,
        auto_commit: bool | float,
        start_from: StartFrom,
        max_batch: int,
    ) -> None:
        self.is_closed = True
        self.group = group
        self.config = ClientConfig.of(namesrv)
        self._settings = (auto_commit, start_from, max_batch)
        self._pid = os.getpid()
        self._session = Session.hold(self.config)
        self._core = None
        self.is_closed = False

    def _begin(self, caller: Caller) -> _Core:
        auto_commit, start_from, max_batch = self._settings
        self._core = _Core(self._session, caller, self.group, auto_commit, start_from, max_batch)
        return self._core

    def _check_open(self) -> None:
        if self.is_closed:
            raise errors.ClosedError("the consumer is closed")
        if self._pid != os.getpid():
            raise errors.ForkedError("this consumer was made before fork()")

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<{type(self).__name__} {self.group} at {';'.join(self.config.namesrv)}: {state}>"

    def __del__(self) -> None:
        if not self.is_closed and self._pid == os.getpid():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
            self._session.release()


# ---- in threads ----------------------------------------------------------------------------------------


class PullConsumer(_Face):
    """Reads queues by offset, ahead of its caller. For one thread; a second one gets `RuntimeError`.

    ::

        with rmqpy.PullConsumer("billing", "127.0.0.1:9876", start_from="earliest") as consumer:
            consumer.assign(consumer.queues("orders"))
            for message in consumer.poll(timeout=5):
                print(message.queue_offset, message.text())

    A queue begins where the group committed last, else at `start_from`. With `auto_commit` (seconds, or True for 5)
    each `poll` commits, from time to time, what earlier polls returned, and so does `close`: a crash repeats
    messages and loses none.
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
        """`max_batch`: messages that one `poll` returns at most."""
        super().__init__(group, namesrv, auto_commit, start_from, max_batch)
        self._lock = threading.Lock()
        self._begin(BlockingCaller(self._session.client))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read, sorted. Raises `TopicNotFound`."""
        return self._run(lambda core: core.queues(topic))

    def assign(self, queues: Iterable[MessageQueue], tags: str = "*") -> None:
        """Read these queues and no others; those assigned before go on where they are.

        `tags`: only messages with one of these tags, `"paid || refunded"`.
        """
        self._run(lambda core: core.assign(queues, tags))

    def poll(
        self, timeout: float | timedelta = 1.0, max_messages: int | None = None
    ) -> list[ReceivedMessage]:
        """Messages that lie ready, or the first to arrive within `timeout` seconds; an empty list otherwise.

        Transient failures are retried and logged; what persists is raised.
        """
        return self._run(lambda core: core.poll(seconds(timeout), max_messages))

    def arrow(self, timeout: float | timedelta = 1.0, columns: Columns | None = None) -> ArrowBatch:
        """The same as columns: everything that lies ready, as Arrow data. Empty when nothing came in time."""
        return self._run(lambda core: core.arrow(columns or Columns(), seconds(timeout)))

    def seek(self, queue: MessageQueue, offset: Place) -> None:
        """Read an assigned queue from an offset, from its begin or end, or from the first message stored at a time."""
        self._run(lambda core: core.seek(queue, offset))

    def position(self, queue: MessageQueue) -> int:
        """The offset after the last message received."""
        return self._now().position(queue)

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset, `None` when it has none."""
        return self._run(lambda core: core.committed(queue))

    def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        """What the broker holds: the first offset, and the one after the last."""
        return self._run(lambda core: core.offsets(queue))

    def offset_at(self, queue: MessageQueue, when: datetime) -> int:
        """The offset of the first message stored at or after a time."""
        return self._run(lambda core: core.offset_at(queue, when))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store what has been received, or these offsets, as the group's progress. Returns when brokers have it."""
        self._run(lambda core: core.commit(offsets))

    def assignment(self) -> frozenset[MessageQueue]:
        """The assigned queues."""
        return self._now().assignment()

    def pause(self, *queues: MessageQueue) -> None:
        """Hand nothing out of these queues until `resume`."""
        self._now().pause(queues, True)

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues."""
        self._now().pause(queues, False)

    def close(self) -> None:
        """Commit if `auto_commit` is on, then end. Idempotent."""
        if not self.is_closed and self._pid == os.getpid():
            core = self._now()
            self.is_closed = True
            run(core.close())

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages as they come, until `close`."""
        while not self.is_closed:
            yield from self.poll()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _now(self) -> _Core:
        self._check_open()
        assert self._core is not None
        return self._core

    def _run(self, work: Callable[[_Core], Coroutine[Any, Any, R]]) -> R:
        core = self._now()
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("a PullConsumer is for one thread, and another one is using it")
        try:
            return run(work(core))
        finally:
            self._lock.release()


# ---- in event loops ------------------------------------------------------------------------------------


class AsyncPullConsumer(_Face):
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

    async def assign(self, queues: Iterable[MessageQueue], tags: str = "*") -> None:
        """As `PullConsumer.assign`."""
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
        while not self.is_closed:
            for message in await self.poll():
                yield message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _now(self) -> _Core:
        self._check_open()
        if self._core is not None:
            return self._core
        self._caller = LoopCaller(self._session.client)
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
