"""`PullConsumer`: reads by offset from a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from rmqpy import errors
from rmqpy._native import ReceivedMessage
from rmqpy.client.group.rebalance import Rebalance
from rmqpy.client.pull.consumer_base import PullConsumerBase, topics_of
from rmqpy.client.pull.cursor import Cursor
from rmqpy.config.arguments import check_types
from rmqpy.message import Filter
from rmqpy.remoting.client import BlockingCaller, run

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    work: Callable[Concatenate[Cursor, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[PullConsumer, P], R]:
    """Return the method that runs this work of the cursor in the caller's thread."""

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

    A queue begins at the group's last commit. A group without progress in a topic begins at `start_from`, and at
    the first message of queues that appear later. With `auto_commit` (seconds, or True for 5)
    `poll` periodically commits the messages of earlier polls, and so does `close`: a crash repeats
    messages and loses none.
    """

    def _begin(self) -> None:
        # Reentrant, because `poll` calls `on_rebalance`, which may call `commit`.
        self._lock = threading.RLock()
        # Created here, because two threads might create two later.
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
        """Join the group for a topic, or several. The queues of this member change between two polls. May be called
        again for other topics, but not together with `assign`.

        `on_rebalance` is called from within `poll` before reading continues: there `commit` works for revoked queues,
        and `seek` for assigned ones. Poll often: a member that polls late loses queues instead of releasing them.
        """

        async def notify(change: Rebalance) -> None:
            assert on_rebalance is not None
            on_rebalance(change)

        topics = topics_of(topic)
        check_types(tags=(tags, Filter), on_rebalance=(on_rebalance, Callable | None))
        self._join(topics, notify if on_rebalance else None).put(topics, tags)

    def close(self) -> None:
        """Commit if `auto_commit` is on, then close. If the commit fails, raises after closing. Idempotent."""
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
        """Yield messages as they arrive, until `close`. Messages that were not yielded are not committed, and the next
        poll returns them."""
        with suppress(errors.ClosedError):
            while True:
                yield from self._core.one_by_one(self.poll())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an exception it is unknown which messages were processed, so they are delivered again.
        self._close(is_committing=kind is None)

    @cached_property
    def _caller(self) -> BlockingCaller:
        return BlockingCaller(self._cluster.client)

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        if not self._lock.acquire(blocking=False):
            work.close()
            raise RuntimeError("a PullConsumer is not thread-safe, and another thread is using it")
        try:
            return run(work)
        finally:
            self._lock.release()
