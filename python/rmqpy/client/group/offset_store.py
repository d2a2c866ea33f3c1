"""Offset store: the progress of a group where the application wants it, such as beside its results in a database.

Owns the contract between a consumer and a store of the user's, and the way from the consumer's event loop to it.
Invariant: one method of a store is called at a time; what a store raises is never taken for progress.
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

    An offset is that of the next message to handle. The methods are called one at a time, in threads that are not those
    of the handlers; they may block. A consumer that shares its queues with others needs a store that all of them see.
    """

    def load(self) -> None:
        """Called once, before anything else. What it raises keeps the consumer from starting."""

    def read(self, queue: MessageQueue) -> int | None:
        """The progress in a queue, `None` where there is none. Also called for queues of other members, once a topic: a
        queue without progress begins at `start_from` only where its topic has none. While it raises, the queue that
        this member has taken waits and is tried again."""

    def update(self, queue: MessageQueue, offset: int) -> None:
        """The progress of a queue has changed. Only this has to be remembered; `persist` follows."""

    def persist(self, queues: Collection[MessageQueue]) -> None:
        """Make the progress of these queues lasting: every 5 s, when queues are given up, and at the end. While it
        raises, `update` and `persist` are called again."""


class StoredOffsets(Offsets):
    """Progress in a store of the user's."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        #: Held by the thread that is in the store: it goes on when whoever waits for it was cancelled.
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
            log.exception("the offset store failed with %d queues and is called again", len(offsets))
            return set(offsets)
        return set()

    async def _call(self, method: Callable[[], R]) -> R:
        def call() -> R:
            with self._inside:
                return method()

        return await asyncio.to_thread(call)
