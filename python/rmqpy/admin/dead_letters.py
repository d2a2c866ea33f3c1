"""Dead letters: messages that exhausted the retries of their group; list, resend, delete.

A dead-letter topic is a normal topic: resending a message leaves it there, because logs are never modified. Resent
copies are marked and found by the id that they share with the dead letter.
"""

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from rmqpy._native import ReceivedMessage
from rmqpy.admin.connection import AdminConnection, Part
from rmqpy.admin.groups import Groups
from rmqpy.admin.messages import Messages
from rmqpy.admin.reading import read
from rmqpy.admin.sending import ORIGIN, properties_of, send_again
from rmqpy.admin.topics import QueueState, Topics
from rmqpy.errors import MessageNotFound, TopicNotFound
from rmqpy.protocol import names
from rmqpy.protocol.requests.progress import GetBrokerConsumeStats

#: The property with the producer's id of a message.
UNIQUE_ID: Final = "UNIQ_KEY"
#: The property of a resent message with the broker's id of its dead letter.
RESENT_FROM: Final = "DLQ_RESENT_FROM"


class DeadLetterCount(NamedTuple):
    """The dead letters of one group."""

    group: str
    messages: int
    #: Store time of the newest one, in ms since the epoch; 0 without any.
    last_ms: int


class DeadLetters(Part):
    """The dead letters of a cluster."""

    def __init__(self, cluster: AdminConnection) -> None:
        super().__init__(cluster)
        self._topics = Topics(cluster)
        self._groups = Groups(cluster)
        self._messages = Messages(cluster)

    async def counts(self) -> list[DeadLetterCount]:
        """List every group with dead letters, by name."""
        counts: dict[str, DeadLetterCount] = {}
        asked = GetBrokerConsumeStats(wants_dead_letter_totals=True)
        for _, _, stats in await self._cluster.ask_masters(asked):
            if stats.dead_letter_totals is None:
                # A broker of Apache: each group is asked for separately, at all brokers.
                return await self._counted()
            for group, held in stats.dead_letter_totals.items():
                known = counts.get(group, DeadLetterCount(group, 0, 0))
                last_ms = max(known.last_ms, held.last_timestamp)
                counts[group] = DeadLetterCount(group, known.messages + held.messages, last_ms)
        return [counts[group] for group in sorted(counts)]

    async def _counted(self) -> list[DeadLetterCount]:
        counts = []
        for name in await self._topics.names(with_system=True):
            if name.startswith(names.DEAD_LETTER_PREFIX):
                queues = await self._topics.describe(name)
                count = sum(queue.end - queue.begin for queue in queues)
                last = max((queue.stored_at_ms for queue in queues), default=0)
                counts.append(DeadLetterCount(names.group_of(name), count, last))
        return counts

    async def messages(self, group: str) -> AsyncIterator[tuple[QueueState, ReceivedMessage]]:
        """Yield dead letters of a group, oldest first within a queue. Raises `GroupNotFound`.

        A deleted group may have some; a group that never had any has no topic for them.
        """
        topic = names.dead_letter_topic(group)
        for queue in await self._queues(group):
            async for message in read(self._cluster, topic, queue, queue.begin, queue.end):
                yield queue, message

    async def get(
        self, group: str, broker: str, queue_id: int, offset: int
    ) -> tuple[QueueState, ReceivedMessage]:
        """Return one dead letter of a group, by its position. Raises `GroupNotFound`, `MessageNotFound`."""
        topic = names.dead_letter_topic(group)
        for queue in await self._queues(group):
            if (queue.broker, queue.queue_id) == (broker, queue_id) and queue.begin <= offset < queue.end:
                async for message in read(self._cluster, topic, queue, offset, offset + 1):
                    return queue, message
        raise MessageNotFound(f"group {group!r} has no dead letter at offset {offset} of {broker}:{queue_id}")

    async def resend(
        self,
        group: str,
        queue: QueueState,
        message: ReceivedMessage,
        *,
        to_origin: bool = False,
        body: bytes | None = None,
    ) -> str:
        """Resend a dead letter to its group only, or with `to_origin` to its original topic for every subscribed group,
        optionally with another `body`. Its attempts start over. Returns the broker's id of the new message.

        The property `DLQ_RESENT_FROM` of the new message names the dead letter: see `resent`. A group that consumes
        in order or by POP does not read its retry topic: use `to_origin`.
        """
        # A message without a producer's id gets one: both are found by it.
        ids = {UNIQUE_ID: message.message_id, RESENT_FROM: message.offset_message_id}
        properties = properties_of(message) | ids
        origin = properties.get(ORIGIN)
        topic = origin if to_origin and origin else names.retry_topic(group)
        if to_origin:
            properties.pop(ORIGIN, None)
        return await send_again(self._cluster, queue.address, topic, message, properties, body)

    async def resent(self, group: str, queue: QueueState, message: ReceivedMessage) -> list[ReceivedMessage]:
        """Return what `resend` has sent of a dead letter, as far as its broker still has it; oldest first.

        Both share an id, which the broker's index finds shortly after the message is stored.
        """
        found: list[ReceivedMessage] = []
        for topic in {names.retry_topic(group), message.properties.get(ORIGIN, message.topic)}:
            same = await self._messages.with_id(topic, message.message_id, queue.broker, queue.address)
            found += [each for each in same if each.properties.get(RESENT_FROM) == message.offset_message_id]
        return sorted(found, key=lambda each: each.stored_at)

    async def purge(self, group: str) -> int:
        """Delete the dead-letter topic of a group and return its number of messages. The next dead letter recreates it.

        Raises `GroupNotFound`.
        """
        queues = await self._queues(group)
        if queues:
            await self._topics.delete(names.dead_letter_topic(group))
        return sum(queue.end - queue.begin for queue in queues)

    async def _queues(self, group: str) -> list[QueueState]:
        """The queues of its dead letters; empty if the group never had any."""
        try:
            return await self._topics.describe(names.dead_letter_topic(group))
        except TopicNotFound:
            await self._groups.describe(group)
            return []
