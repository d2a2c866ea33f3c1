"""Undecided half messages, for an operator.

A half is decided if a record of the other topic names its offset; all below the committed offset are. Reads the two
topics like a broker after a start, rmqpy's or Apache's, with a bound.
"""

from typing import Final, NamedTuple

from rmqpy._native import ReceivedMessage
from rmqpy.admin.connection import Part
from rmqpy.admin.reading import read
from rmqpy.admin.topics import QueueState, Topics
from rmqpy.errors import TopicNotFound
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.offsets import QueryConsumerOffset

#: Maximum half messages and decisions read from each queue, the newest first.
HALVES_MAX: Final = 1_000
_DECISIONS_MAX: Final = 10_000


class OpenHalves(NamedTuple):
    """Undecided half messages, oldest first."""

    messages: list[ReceivedMessage]
    #: The number of older half messages that were not read, decided or not.
    unscanned: int


class HalfMessages(Part):
    """The half messages of one cluster."""

    async def open(self) -> OpenHalves:
        """List undecided half messages of all brokers; if there are more than a thousand, the newest."""
        found: list[ReceivedMessage] = []
        unscanned = 0
        for queue in await self._queues(names.HALF_TOPIC):
            done = await self._committed(names.HALF_TOPIC, queue)
            first = max(done, queue.end - HALVES_MAX)
            unscanned += first - done
            halves = [each async for each in read(self._cluster, names.HALF_TOPIC, queue, first, queue.end)]
            if halves:
                decided = await self._decided(queue)
                found += [each for each in halves if each.queue_offset not in decided]
        return OpenHalves(sorted(found, key=lambda each: each.stored_at), unscanned)

    async def _decided(self, halves: QueueState) -> set[int]:
        """Offsets in a queue of half messages that are named by decisions."""
        decided: set[int] = set()
        for queue in await self._queues(names.OP_HALF_TOPIC):
            if (queue.broker, queue.queue_id) != (halves.broker, halves.queue_id):
                continue
            first = max(await self._committed(names.OP_HALF_TOPIC, queue), queue.end - _DECISIONS_MAX)
            async for mark in read(self._cluster, names.OP_HALF_TOPIC, queue, first, queue.end):
                decided.update(
                    int(each) for each in mark.body.decode("ascii", "replace").split(",") if each.isdigit()
                )
        return decided

    async def _committed(self, topic: str, queue: QueueState) -> int:
        ask = QueryConsumerOffset(
            consumer_group=names.TRANSACTION_GROUP, topic=topic, queue_id=queue.queue_id
        )
        reply = await self._cluster.ask_unless(ResponseCode.QUERY_NOT_FOUND, queue.address, ask)
        return max(queue.begin, 0 if reply is None else reply.offset)

    async def _queues(self, topic: str) -> list[QueueState]:
        """Its queues; empty on a broker without transactions so far."""
        try:
            return await Topics(self._cluster).describe(topic)
        except TopicNotFound:
            return []
