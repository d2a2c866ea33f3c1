"""Adoption: creates topics that the log has and the configuration lacks.

A master acknowledges a new topic when its slaves have it, or are late; messages may be replicated sooner. If the master
dies in between, its successor has acknowledged messages in queues without a topic.
Threads: the event loop's; the store is queried in a worker.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Final

from rmqpy._native import Store
from rmqpy.control.tables.listed import listed
from rmqpy.control.topics.table import QUEUES_MAX, Topics
from rmqpy.protocol import names
from rmqpy.protocol.topics import TopicConfig

log = logging.getLogger(__name__)

#: The most names in one log line.
_NAMED_MAX: Final = 20


async def adopt(topics: Topics, store: Store) -> None:
    """Create a topic, with enough queues, for queues that the store has without one. Raises `StoreError`."""
    found = {
        name: _with_queues(topics.next_table.get(name), name, max(ids) + 1)
        for name, ids in await asyncio.to_thread(store.queues)
        if ids and max(ids) < QUEUES_MAX and name not in topics.system and not names.is_light(name)
    }
    adopted = await topics.put(*found.values())
    if adopted:
        log.warning(
            "created topics that the log has but the last master did not replicate: %s%s",
            *listed([topic.topic_name for topic in adopted], _NAMED_MAX),
        )


def _with_queues(known: TopicConfig | None, name: str, count: int) -> TopicConfig:
    if known is None:
        return TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
    if max(known.read_queue_nums, known.write_queue_nums) >= count:
        return known
    return dataclasses.replace(known, read_queue_nums=count, write_queue_nums=count)
