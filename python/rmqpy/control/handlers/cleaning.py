"""Deleting on demand what has expired. Runs on the event loop; the store works in a thread."""

from __future__ import annotations

import asyncio

from rmqpy._native import Store
from rmqpy.protocol.requests.cleaning import CleanExpiredConsumeQueue, DeleteExpiredCommitLog
from rmqpy.remoting.server import handles


class CleaningHandlers:
    """Each answers when it is done; Apache's broker answers when it has begun."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @handles(DeleteExpiredCommitLog)
    async def delete_expired(self, ask: DeleteExpiredCommitLog) -> None:
        await asyncio.to_thread(self._store.delete_expired)

    @handles(CleanExpiredConsumeQueue)
    async def trim(self, ask: CleanExpiredConsumeQueue) -> None:
        # Apache's broker also forgets queues that hold nothing any more, whose offsets then begin at 0 again: members
        # that were further would pass over what comes next. Here a queue keeps its end.
        await asyncio.to_thread(self._store.trim)
