"""Half messages that wait for their producers' decision, for an operator.

A half is decided where a record of the other topic names its offset; below the committed offset all are. Read from the
two topics, as the broker itself reads them after a start, ours or the original's, and bounded.
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

#: The newest halves and the newest decisions of each queue that are looked at.
HALVES_MAX: Final = 1_000
_DECISIONS_MAX: Final = 10_000


class OpenHalves(NamedTuple):
    """Half messages that nobody has decided about, oldest first."""

    messages: list[ReceivedMessage]
    #: Older ones that were not looked at, decided or not.
    unscanned: int


class HalfMessages(Part):
    """The half messages of one cluster."""

    async def open(self) -> OpenHalves:
        """Those that are open at all brokers; more than a thousand wait seldom, and of these the newest are told."""
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
        """Offsets of a queue of halves that the decisions beside it name."""
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
        told = await self._cluster.ask_unless(ResponseCode.QUERY_NOT_FOUND, queue.address, ask)
        return max(queue.begin, 0 if told is None else told.offset)

    async def _queues(self, topic: str) -> list[QueueState]:
        """Its queues; none at a broker that had no transaction yet."""
        try:
            return await Topics(self._cluster).describe(topic)
        except TopicNotFound:
            return []
