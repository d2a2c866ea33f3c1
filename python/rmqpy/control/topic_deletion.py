"""Deletion of the offsets, queues and statistics of unconfigured topics.

Threads: the event loop's; the store works in another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rmqpy._native import Offsets, Store
from rmqpy.control.groups.offset_file import OffsetFile
from rmqpy.control.statistics.traffic import Statistics
from rmqpy.control.tiered.storage import TieredStorage


class TopicDeletion:
    """Deletes the offsets, queues and statistics of removed topics."""

    def __init__(
        self,
        offsets: Offsets,
        offset_file: OffsetFile,
        store: Store,
        statistics: Statistics,
        tier: TieredStorage | None,
    ) -> None:
        self._offsets = offsets
        self._offset_file = offset_file
        self._store = store
        self._statistics = statistics
        self._tier = tier

    async def delete(self, topics: Sequence[str]) -> None:
        """Delete offsets before queues: an old offset must not skip messages of a new topic with the same name. Raises
        `StoreError`."""
        if not topics:
            return
        for name in topics:
            self._offsets.remove_topic(name)
        await self._offset_file.save()
        if self._tier is not None:
            await asyncio.to_thread(self._tier.forget, topics)
        for name in topics:
            await asyncio.to_thread(self._store.delete_topic, name)
            self._statistics.forget_topic(name)
