"""`PullConsumer`: reading by offset from a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from rmqpy import errors
from rmqpy._native import ReceivedMessage
from rmqpy.client.consumer_base import PullConsumerBase, topics_of
from rmqpy.client.cursor import Cursor
from rmqpy.client.group.rebalance import Rebalance
from rmqpy.config.arguments import check_types
from rmqpy.message import Filter
from rmqpy.remoting.client import BlockingCaller, run

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    work: Callable[Concatenate[Cursor, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[PullConsumer, P], R]:
    """The method that does this work of the cursor in the caller's thread."""

    @wraps(work)
    def method(self: PullConsumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(work(self._now(), *args, **kwargs))

    return method


class PullConsumer(PullConsumerBase):
    """Reads queues by offset, ahead of its caller. For one thread; a second one gets `RuntimeError`.

    ::

        with rmqpy.PullConsumer("billing", "127.0.0.1:9876", start_from="earliest") as consumer:
            consumer.subscribe("orders")
            while messages := consumer.poll(timeout=5):
                for message in messages:
                    print(message.queue_offset, message.text())

    A queue begins where the group committed last. A group without progress in a topic begins at `start_from`, and at
    the first message of queues that appear later. With `auto_commit` (seconds, or True for 5)
    each `poll` commits, from time to time, what earlier polls returned, and so does `close`: a crash repeats
    messages and loses none.
    """

    def _begin(self) -> None:
        # A rebalance calls its user, who calls `commit`, from within `poll`.
        self._lock = threading.RLock()
        # At once: later, two threads might make two.
        self._now()

    queues = _blocking(Cursor.queues)
    assign = _blocking(Cursor.assign)
    poll = _blocking(Cursor.poll)
    arrow = _blocking(Cursor.arrow)
    seek = _blocking(Cursor.seek)
    committed = _blocking(Cursor.committed)
    offsets = _blocking(Cursor.offsets)
    offset_at = _blocking(Cursor.offset_at)
    commit = _blocking(Cursor.commit)

    def subscribe(
        self,
        topic: str | Iterable[str],
        tags: Filter = "*",
        *,
        on_rebalance: Callable[[Rebalance], object] | None = None,
    ) -> None:
        """Share the queues of a topic, or of several, with the other members of the group; what is this member's
        changes between two polls. May be called again for other topics; not together with `assign`.

        `on_rebalance` is called from within `poll` before reading goes on: `commit` works there for what is
        revoked, `seek` for what was assigned. Poll often: a member that comes late finds its queues lost, not revoked.
        """

        async def notify(change: Rebalance) -> None:
            assert on_rebalance is not None
            on_rebalance(change)

        topics = topics_of(topic)
        check_types(tags=(tags, Filter), on_rebalance=(on_rebalance, Callable | None))
        self._join(topics, notify if on_rebalance else None).put(topics, tags)

    def close(self) -> None:
        """Commit if `auto_commit` is on, then end. Raises when the commit failed; it has ended all the same.
        Idempotent."""
        self._close(is_committing=True)

    def _close(self, *, is_committing: bool) -> None:
        if not self.is_closed and not self._is_forked:
            core = self._now()
            self.is_closed = True
            try:
                run(core.close(is_committing=is_committing))
            finally:
                self._close_trace()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages as they come, until `close`. What was not handed out is not committed, and comes with the next
        poll."""
        with suppress(errors.ClosedError):
            while True:
                yield from self._core.one_by_one(self.poll())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # With an exception nobody knows what was processed: it is delivered again.
        self._close(is_committing=kind is None)

    @cached_property
    def _caller(self) -> BlockingCaller:
        return BlockingCaller(self._cluster.client)

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        if not self._lock.acquire(blocking=False):
            work.close()
            raise RuntimeError("a PullConsumer is for one thread, and another one is using it")
        try:
            return run(work)
        finally:
            self._lock.release()
