"""Deletion of what is left of topics without a configuration: offsets, queues, statistics.

Threads: the event loop's; the store works in another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rmqpy._native import Offsets, Store
from rmqpy.control.groups.offset_file import OffsetFile
from rmqpy.control.statistics.traffic import Statistics


class TopicDeletion:
    """Deletes what is left."""

    def __init__(
        self, offsets: Offsets, offset_file: OffsetFile, store: Store, statistics: Statistics
    ) -> None:
        self._offsets = offsets
        self._offset_file = offset_file
        self._store = store
        self._statistics = statistics

    async def delete(self, topics: Sequence[str]) -> None:
        """Offsets before the queues: those of the old topic must not outlive it and skip what a new one holds. Raises
        `StoreError`."""
        if not topics:
            return
        for name in topics:
            self._offsets.remove_topic(name)
        await self._offset_file.save()
        for name in topics:
            await asyncio.to_thread(self._store.delete_topic, name)
            self._statistics.forget_topic(name)
