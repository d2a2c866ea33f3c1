"""Offset store: the progress of a group in the application's storage, such as a database next to its results.

Owns the contract between a consumer and a user's store, and the calls from the consumer's event loop.
Invariant: the methods of a store are called one at a time, and an exception is never taken for progress.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeVar

from rmqpy import errors
from rmqpy.client.group.offsets import Offsets
from rmqpy.message import MessageQueue

log = logging.getLogger(__name__)

R = TypeVar("R")


class OffsetStore(Protocol):
    """Progress of one group, kept by the application: `PushConsumer(offset_store=...)`.

    An offset is that of the next message to handle. The consumer calls one method at a time, in threads other than
    those of the handlers; they may block. Consumers that share a group's queues need a store that all of them can
    reach.
    """

    def load(self) -> None:
        """Prepare the store; called once, before the other methods. An exception prevents the consumer from
        starting."""

    def read(self, queue: MessageQueue) -> int | None:
        """Return the progress in a queue, or `None` if there is none. Also called once per topic for queues of other
        members: a queue without progress begins at `start_from` only where its topic has none. After an exception, the
        queue waits and the read is retried."""

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Note the progress of a queue in memory; `persist` follows."""

    def persist(self, queues: Collection[MessageQueue]) -> None:
        """Write the progress of these queues durably: every 5 s, when queues are released, and at the end. After an
        exception, `update` and `persist` are called again."""


class StoredOffsets(Offsets):
    """Progress in an application's store."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        #: Held by the thread that calls the store, which continues after its waiter is cancelled.
        self._inside = threading.Lock()

    async def open(self) -> None:
        await self._call(self._store.load)

    async def load(self, queue: MessageQueue) -> int | None:
        try:
            return await self._call(lambda: self._store.read(queue))
        except Exception as error:
            raise errors.RocketMQError(
                f"the offset store cannot read {queue}: {error!r}", retriable=True
            ) from error

    async def save(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        def persist() -> None:
            for queue, offset in offsets.items():
                self._store.update(queue, offset)
            self._store.persist(offsets.keys())

        try:
            await self._call(persist)
        except Exception:
            log.exception("the offset store failed for %d queues, retrying", len(offsets))
            return set(offsets)
        return set()

    async def _call(self, method: Callable[[], R]) -> R:
        def call() -> R:
            with self._inside:
                return method()

        return await asyncio.to_thread(call)
