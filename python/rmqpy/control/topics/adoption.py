"""Adoption: the topics of a log, where their configuration never came.

A master answers for a new topic when its slaves have it, or when they are late; the messages behind it may be copied
sooner. Where it dies in between, the slave that leads next has acknowledged messages in queues that no topic has.
Threads: the event loop's; the store is asked in a worker.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Final

from rmqpy._native import Store
from rmqpy.control.tables.listed import listed
from rmqpy.control.topics.table import QUEUES_MAX, Topics
from rmqpy.protocol.topics import TopicConfig

log = logging.getLogger(__name__)

#: Names in one line of the log.
_NAMED_MAX: Final = 20


async def adopt(topics: Topics, store: Store) -> None:
    """Give each queue that the store has a topic with so many queues. Raises `StoreError`."""
    found = {
        name: _with_queues(topics.next_table.get(name), name, max(ids) + 1)
        for name, ids in await asyncio.to_thread(store.queues)
        if ids and max(ids) < QUEUES_MAX and name not in topics.system
    }
    adopted = await topics.put(*found.values())
    if adopted:
        log.warning(
            "the log has queues of topics whose configuration the last master did not pass on; they exist now, to be "
            "read and written: %s%s",
            *listed([topic.topic_name for topic in adopted], _NAMED_MAX),
        )


def _with_queues(known: TopicConfig | None, name: str, count: int) -> TopicConfig:
    if known is None:
        return TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
    if max(known.read_queue_nums, known.write_queue_nums) >= count:
        return known
    return dataclasses.replace(known, read_queue_nums=count, write_queue_nums=count)
