"""`PullConsumer`: reading by offset from a thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
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
from rmqpy.remoting.client import BlockingCaller, run

R = TypeVar("R")


class PullConsumer(PullConsumerBase):
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
        # A rebalance calls its user, who calls `commit`, from within `poll`.
        self._lock = threading.RLock()
        self._begin(BlockingCaller(self._cluster.client))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read, sorted. Raises `TopicNotFound`."""
        return self._run(lambda core: core.queues(topic))

    def subscribe(
        self, topic: str, tags: str = "*", *, on_rebalance: Callable[[Rebalance], object] | None = None
    ) -> None:
        """Share the queues of a topic with the other members of the group; what is this member's changes between
        two polls. May be called for several topics, and instead of `assign`.

        `on_rebalance` is called from within `poll` before reading goes on: `commit` works there for what is
        revoked, `seek` for what was assigned. Poll often: a member that comes late finds its queues lost, not revoked.
        """
        core = self._now()

        async def notify(change: Rebalance) -> None:
            assert on_rebalance is not None
            on_rebalance(change)

        self._join(core, topic, notify if on_rebalance else None).put(topic, tags)

    def assign(self, queues: Iterable[MessageQueue], tags: str = "*") -> None:
        """Read these queues and no others; those assigned before go on where they are.

        `tags`: only messages with one of these tags, `"paid || refunded"`.
        """
        self._check_free()
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
        """The offsets the broker holds: the first, and the one after the last."""
        return self._run(lambda core: core.offsets(queue))

    def offset_at(self, queue: MessageQueue, when: datetime) -> int:
        """The offset of the first message stored at or after a time."""
        return self._run(lambda core: core.offset_at(queue, when))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store what has been received, or these offsets, as the group's progress. Returns when brokers have it.

        Raises `QueueLost` when another member owns some of the queues by now; the others are committed.
        """
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
        with suppress(errors.ClosedError):
            while True:
                yield from self.poll()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _now(self) -> Cursor:
        self._check_open()
        assert self._core is not None
        return self._core

    def _run(self, work: Callable[[Cursor], Coroutine[Any, Any, R]]) -> R:
        core = self._now()
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("a PullConsumer is for one thread, and another one is using it")
        try:
            return run(work(core))
        finally:
            self._lock.release()
