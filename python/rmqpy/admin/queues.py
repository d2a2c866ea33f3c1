"""Single queues: contents, store times, raw entries."""

from datetime import datetime
from typing import NamedTuple, TypeVar

from rmqpy.admin.connection import Part, masters
from rmqpy.admin.topics import Topics
from rmqpy.clock import date_of
from rmqpy.errors import RocketMQError
from rmqpy.message import MessageQueue
from rmqpy.protocol.declare import Request
from rmqpy.protocol.requests.messages import QueryConsumeQueue
from rmqpy.protocol.requests.offsets import (
    GetEarliestMsgStoreTime,
    GetMaxOffset,
    GetMinOffset,
    SearchOffsetByTimestamp,
)

R = TypeVar("R")


class QueueEntry(NamedTuple):
    """One entry of a queue."""

    offset: int
    #: The position of its record in the broker's log, and its size.
    log_offset: int
    log_bytes: int
    #: Java's hash of the tag.
    tag_code: int


class Queues(Part):
    """The queues of one cluster."""

    async def earliest_store_time(self, queue: MessageQueue) -> datetime | None:
        """Return the store time of the oldest message of a queue, in UTC; `None` if empty. Raises `TopicNotFound`."""
        ask = GetEarliestMsgStoreTime(topic=queue.topic, queue_id=queue.queue_id)
        stored_ms = (await self._ask(queue, ask)).timestamp
        return None if stored_ms < 0 else date_of(stored_ms)

    async def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the offset of the first message of a queue, and the one after its last. Raises `TopicNotFound`."""
        topic, queue_id = queue.topic, queue.queue_id
        begin = await self._ask(queue, GetMinOffset(topic=topic, queue_id=queue_id))
        return begin.offset, (await self._ask(queue, GetMaxOffset(topic=topic, queue_id=queue_id))).offset

    async def offset_at(self, queue: MessageQueue, when: datetime) -> int:
        """Return the offset of the first message stored at or after a time, or the end."""
        moment = round(when.timestamp() * 1000)
        ask = SearchOffsetByTimestamp(topic=queue.topic, queue_id=queue.queue_id, timestamp=moment)
        return (await self._ask(queue, ask)).offset

    async def entries(self, queue: MessageQueue, offset: int, count: int = 10) -> list[QueueEntry]:
        """Return up to `count` entries from an offset. Raises `TopicNotFound`."""
        ask = QueryConsumeQueue(topic=queue.topic, queue_id=queue.queue_id, index=offset, count=count)
        units = (await self._ask(queue, ask)).queue_data
        return [
            QueueEntry(offset + at, unit.physic_offset, unit.physic_size, unit.tags_code)
            for at, unit in enumerate(units)
        ]

    async def _ask(self, queue: MessageQueue, ask: Request[R]) -> R:
        address = masters(await Topics(self._cluster).route(queue.topic)).get(queue.broker)
        if address is None:
            raise RocketMQError(f"no broker {queue.broker} has topic {queue.topic!r}", topic=queue.topic)
        return await self._cluster.ask(address, ask)
