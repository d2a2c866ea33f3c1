"""Dead letters: messages whose group has used up its retries; listed, sent again, deleted.

A dead-letter topic is an ordinary one: sending a message again leaves it there, for nothing in a log is ever changed.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

from rmqpy._native import ReceivedMessage
from rmqpy.admin.connection import AdminConnection, Part
from rmqpy.admin.reading import read
from rmqpy.admin.sending import ORIGIN, properties_of, send_again
from rmqpy.admin.topics import QueueState, Topics
from rmqpy.errors import TopicNotFound
from rmqpy.protocol import names


class DeadLetterCount(NamedTuple):
    """The dead letters of one group."""

    group: str
    messages: int
    #: When the last one came, in ms since the epoch; 0 when there is none.
    last_ms: int


class DeadLetters(Part):
    """The dead letters of a cluster."""

    def __init__(self, cluster: AdminConnection) -> None:
        super().__init__(cluster)
        self._topics = Topics(cluster)

    async def counts(self) -> list[DeadLetterCount]:
        """Every group that has dead letters, by name."""
        counts = []
        for name in await self._topics.names(with_system=True):
            if name.startswith(names.DEAD_LETTER_PREFIX):
                queues = await self._topics.describe(name)
                count = sum(queue.end - queue.begin for queue in queues)
                last = max((queue.stored_at_ms for queue in queues), default=0)
                counts.append(DeadLetterCount(names.group_of(name), count, last))
        return counts

    async def messages(self, group: str) -> AsyncIterator[tuple[QueueState, ReceivedMessage]]:
        """Dead letters of a group, oldest first within a queue; none where the group has no such topic."""
        topic = names.dead_letter_topic(group)
        try:
            queues = await self._topics.describe(topic)
        except TopicNotFound:
            return
        for queue in queues:
            async for message in read(self._cluster, topic, queue, queue.begin, queue.end):
                yield queue, message

    async def resend(
        self, group: str, queue: QueueState, message: ReceivedMessage, *, to_origin: bool = False
    ) -> str:
        """Send a dead letter again: to its group alone, or with `to_origin` to the topic it was sent to first, where
        every group that subscribes gets it. Its count of attempts starts over. The broker's id of the new message.

        A group that consumes in order takes nothing from its retry topic: for such a group use `to_origin`.
        """
        properties = properties_of(message)
        origin = properties.get(ORIGIN)
        topic = origin if to_origin and origin else names.retry_topic(group)
        if to_origin:
            properties.pop(ORIGIN, None)
        return await send_again(self._cluster, queue.address, topic, message, properties)

    async def purge(self, group: str) -> int:
        """Delete the dead-letter topic of a group: how many messages it held. The next dead letter makes a new one."""
        topic = names.dead_letter_topic(group)
        try:
            queues = await self._topics.describe(topic)
        except TopicNotFound:
            return 0
        await self._topics.delete(topic)
        return sum(queue.end - queue.begin for queue in queues)
