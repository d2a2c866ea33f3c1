"""Lite topics: their life span.

A lite topic begins with its first message, and ends some time after its last one, whether or not it was consumed.
Threads: the event loop's; the store works in another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from rmqpy._native import LiteConsumers, Offsets, Store
from rmqpy.clock import Clock
from rmqpy.control.groups.offset_file import OffsetFile
from rmqpy.control.settings import LiveConfig
from rmqpy.control.tables import attributes
from rmqpy.control.topics.table import Topics

log = logging.getLogger(__name__)

#: Lite topics deleted in one step; each step writes the table of offsets.
_PIECE: Final = 1_000
_PIECES_MAX: Final = 100
_MINUTE_MS: Final = 60_000
#: A time that every lite topic has outlived.
_ALWAYS: Final = -(1 << 62)


class LiteTopics:
    """Deletes lite topics."""

    def __init__(
        self,
        config: LiveConfig,
        topics: Topics,
        store: Store,
        offsets: Offsets,
        offset_file: OffsetFile,
        consumers: LiteConsumers,
        clock: Clock,
    ) -> None:
        self._config = config
        self._topics = topics
        self._store = store
        self._offsets = offsets
        self._offset_file = offset_file
        self._consumers = consumers
        self._clock = clock

    def minutes(self) -> dict[str, int]:
        """Return the minutes that lite topics stay after their last message by parent; 0 or less: forever."""
        return {
            name: int(topic.attributes.get(attributes.LITE_EXPIRATION, "-1"))
            for name, topic in self._topics.table.items()
            if attributes.is_lite_parent(topic.attributes)
        }

    async def expire(self) -> None:
        """Delete the lite topics whose time is over. Raises `StoreError`."""
        least_ms = self._config.now.lite_ttl_min_ms
        # Its master ends a lite topic first, so that no lite topic in use there ends here.
        later_ms = least_ms + self._config.now.lite_ttl_interval_ms if self._topics.is_copy else 0
        kept_ms = {
            name: max(minutes * _MINUTE_MS, least_ms) + later_ms
            for name, minutes in self.minutes().items()
            if minutes > 0
        }
        if kept_ms and (count := await self._delete_stale(kept_ms)):
            log.info("deleted %d lite topics without new messages", count)

    async def delete_of(self, parent: str) -> None:
        """Delete all lite topics of a deleted topic. Raises `StoreError`."""
        if count := await self._delete_stale({parent: _ALWAYS}):
            log.info("deleted %d lite topics of %s", count, parent)

    async def _delete_stale(self, kept_ms: dict[str, int]) -> int:
        count = 0
        for _ in range(_PIECES_MAX):
            now_ms = self._clock.wall_ms()
            stale = await asyncio.to_thread(self._store.stale_lite_topics, now_ms, kept_ms, _PIECE)
            await self._delete(stale)
            count += len(stale)
            if len(stale) < _PIECE:
                break
        return count

    async def _delete(self, queues: Sequence[str]) -> None:
        """Delete offsets before queues: an old offset must not skip messages of a new lite topic with the same name."""
        if queues:
            self._offsets.remove_topics(set(queues))
            await self._offset_file.save()
            await asyncio.to_thread(self._store.delete_topics, queues)
            self._consumers.remove_queues(queues)
