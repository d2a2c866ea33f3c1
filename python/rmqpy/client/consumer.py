"""`PullConsumer`: reading by offset from a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Self, TypeVar

from rmqpy import errors
from rmqpy._native import ArrowBatch, Columns, ReceivedMessage
from rmqpy.client.consumer_base import PullConsumerBase
from rmqpy.client.cursor import Cursor, Place
from rmqpy.client.group.rebalance import Rebalance
from rmqpy.config.client import seconds
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

    def _begin(self) -> None:
        # A rebalance calls its user, who calls `commit`, from within `poll`.
        self._lock = threading.RLock()
        # At once: later, two threads might make two.
        self._now()

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

        async def notify(change: Rebalance) -> None:
            assert on_rebalance is not None
            on_rebalance(change)

        self._join(topic, notify if on_rebalance else None).put(topic, tags)

    def assign(self, queues: Iterable[MessageQueue], tags: str = "*") -> None:
        """Read these queues and no others; those assigned before go on where they are.

        `tags`: only messages with one of these tags, `"paid || refunded"`.
        """
        self._check_unsubscribed()
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

    def close(self) -> None:
        """Commit if `auto_commit` is on, then end. Idempotent."""
        if not self.is_closed and not self._is_forked:
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

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _caller(self) -> BlockingCaller:
        return BlockingCaller(self._cluster.client)

    def _run(self, work: Callable[[Cursor], Coroutine[Any, Any, R]]) -> R:
        core = self._now()
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("a PullConsumer is for one thread, and another one is using it")
        try:
            return run(work(core))
        finally:
            self._lock.release()
