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
from rmqpy.config import properties
from rmqpy.errors import MessageNotFound, TopicNotFound
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.brokers import GetBrokerConfig
from rmqpy.protocol.requests.progress import GetBrokerConsumeStats
from rmqpy.protocol.requests.topics import GetTopicConfig

#: The property with the producer's id of a message.
UNIQUE_ID: Final = "UNIQ_KEY"
#: The property of a resent message with the broker's id of its dead letter.
RESENT_FROM: Final = "DLQ_RESENT_FROM"
#: Properties of messages that are popped again: the time of the first pop, and the group.
FIRST_POP_TIME: Final = "1ST_POP_TIME"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"


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

        The property `DLQ_RESENT_FROM` of the new message names the dead letter: see `resent`. A group that consumes by
        POP gets it through its POP retry topic. A group that consumes in order does not read a retry topic: use
        `to_origin`.
        """
        # A message without a producer's id gets one: both are found by it.
        ids = {UNIQUE_ID: message.message_id, RESENT_FROM: message.offset_message_id}
        kept = properties_of(message) | ids
        # Its deliveries start over.
        kept.pop(FIRST_POP_TIME, None)
        origin = _origin(group, message)
        if to_origin:
            kept.pop(ORIGIN, None)
            topic = origin or names.retry_topic(group)
        else:
            popped = None if origin is None else await self._pop_retry_topic(group, origin, queue.address)
            if popped is not None:
                # The group pops it under its first topic in any case.
                kept.pop(ORIGIN, None)
                kept[ORIGIN_GROUP] = group
            topic = popped or names.retry_topic(group)
        return await send_again(self._cluster, queue.address, topic, message, kept, body)

    async def _pop_retry_topic(self, group: str, topic: str, address: str) -> str | None:
        """The topic from which the group pops messages of `topic` again at a broker; None if it does not pop them.

        The first pop, or at Apache's broker the first redelivery, creates it. Both kinds exist after a change of
        `enableRetryTopicV2`.
        """
        kinds = {
            is_v2: names.pop_retry_topic(group, topic, is_v2=is_v2)
            for is_v2 in (False, True)
            if await self._has_topic(address, names.pop_retry_topic(group, topic, is_v2=is_v2))
        }
        if len(kinds) < 2:
            return next(iter(kinds.values()), None)
        settings = properties.parse((await self._cluster.ask(address, GetBrokerConfig())).body)
        return kinds[settings.get("enableRetryTopicV2") == "true"]

    async def _has_topic(self, address: str, topic: str) -> bool:
        ask = GetTopicConfig(topic=topic)
        return await self._cluster.ask_unless(ResponseCode.TOPIC_NOT_EXIST, address, ask) is not None

    async def resent(self, group: str, queue: QueueState, message: ReceivedMessage) -> list[ReceivedMessage]:
        """Return what `resend` has sent of a dead letter, as far as its broker still has it; oldest first.

        Both share an id, which the broker's index finds shortly after the message is stored.
        """
        origin = _origin(group, message)
        topics = {names.retry_topic(group), origin or message.topic}
        if origin is not None:
            topics |= {names.pop_retry_topic(group, origin, is_v2=is_v2) for is_v2 in (False, True)}
        found: list[ReceivedMessage] = []
        for topic in sorted(topics):
            same = await self._messages.with_id(topic, message.message_id, queue.broker, queue.address)
            found += [each for each in same if each.properties.get(RESENT_FROM) == message.offset_message_id]
        return sorted(found, key=lambda each: each.stored_at)

    async def is_newest_resent(self, group: str) -> bool:
        """Whether `resend` has sent the newest dead letter of a group. Raises `GroupNotFound`."""
        queues = [each for each in await self._queues(group) if each.end > each.begin]
        newest = max(queues, key=lambda each: each.stored_at_ms, default=None)
        if newest is None:
            return False
        topic, offset = names.dead_letter_topic(group), newest.end - 1
        async for message in read(self._cluster, topic, newest, offset, newest.end):
            return bool(await self.resent(group, newest, message))
        return False

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


def _origin(group: str, message: ReceivedMessage) -> str | None:
    """Return the topic that a dead letter was sent to, or None if it does not say. Apache's broker may name a POP retry
    topic."""
    origin = message.properties.get(ORIGIN)
    return None if origin is None else names.popped_topic(group, origin)
