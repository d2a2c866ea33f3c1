"""Single messages for an operator: by id, key or time, the newest; resent to a group."""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Final

from rmqpy._native import ReceivedMessage
from rmqpy.admin.connection import AdminConnection, Part, masters
from rmqpy.admin.reading import read
from rmqpy.admin.sending import ORIGIN, properties_of, send_again
from rmqpy.admin.topics import QueueState, Topics
from rmqpy.errors import (
    ConfigError,
    DecodeError,
    GroupNotFound,
    MessageNotFound,
    RocketMQError,
    TopicNotFound,
)
from rmqpy.message import MessageQueue
from rmqpy.protocol import ids, names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.messages import QueryMessage, ViewMessageById
from rmqpy.protocol.requests.offsets import SearchOffsetByTimestamp
from rmqpy.protocol.requests.transactions import ResumeCheckHalfMessage

#: The most messages of one id that are read: each retry of a consumer creates one.
_SAME_ID_MAX: Final = 64
_FOREVER_MS: Final = (1 << 63) - 1
#: The bytes of a record before its queue id: size, magic number, checksum.
_QUEUE_ID_AT: Final = 12
#: The interval between reads at the end of a topic.
_LOOK_AGAIN_S: Final = 0.25


class Messages(Part):
    """The messages of one cluster."""

    def __init__(self, cluster: AdminConnection) -> None:
        super().__init__(cluster)
        self._topics = Topics(cluster)

    async def get(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """Return one message: by the broker's id, or with its topic by the producer's id.

        The broker's id contains the address that is asked. Raises `MessageNotFound`.
        """
        if topic is not None:
            for message in await self._query(topic, message_id, 1, 0, _FOREVER_MS, is_unique=True):
                if message.message_id == message_id:
                    return message
        place = ids.decode(message_id)
        if isinstance(place, ids.OffsetId):
            ask = ViewMessageById(offset=place.offset, topic=topic)
            reply = await self._cluster.ask_unless(ResponseCode.SYSTEM_ERROR, place.address, ask)
            if reply is not None:
                return self._message(reply, "")
        elif topic is None:
            raise ConfigError(
                f"{message_id!r} is not a broker's id",
                hint="for a producer's id give its topic: --topic NAME",
            )
        raise MessageNotFound(f"message {message_id!r} does not exist", topic=topic)

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin: datetime | None = None,
        end: datetime | None = None,
        count: int = 32,
    ) -> list[ReceivedMessage]:
        """Return messages of a topic with a key, newest first, at most `count` of each broker.

        Raises `TopicNotFound`.
        """
        found = await self._query(topic, key, count, _ms(begin, 0), _ms(end, _FOREVER_MS))
        # Brokers search by a hash of the key.
        hits = [message for message in found if key in message.keys]
        return sorted(hits, key=lambda message: message.stored_at, reverse=True)

    async def by_tag(self, topic: str, tag: str, *, count: int = 32) -> list[ReceivedMessage]:
        """Return messages of a topic with a tag, newest first, at most `count` of each broker.

        Raises `TopicNotFound`.
        """
        found = await self._query(topic, tag, count, 0, _FOREVER_MS, index_type="T")
        hits = [message for message in found if message.tag == tag]
        return sorted(hits, key=lambda message: message.stored_at, reverse=True)

    async def between(
        self, topic: str, begin: datetime | None = None, end: datetime | None = None
    ) -> AsyncIterator[ReceivedMessage]:
        """Yield messages of a topic stored from `begin` until before `end`, queue by queue. Raises `TopicNotFound`."""
        for state in await self._topics.describe(topic):
            first, last = await self.range_between(topic, state, begin, end)
            async for message in read(self._cluster, topic, state, first, last):
                yield message

    async def of_queue(
        self, topic: str, state: QueueState, begin: datetime | None = None, end: datetime | None = None
    ) -> AsyncIterator[ReceivedMessage]:
        """Yield messages of one queue stored from `begin` until before `end`, in order. Messages stored after the call
        of `topic` that returned `state` are left out."""
        first, last = await self.range_between(topic, state, begin, end)
        async for message in read(self._cluster, topic, state, first, min(last, state.end)):
            yield message

    async def range_between(
        self, topic: str, state: QueueState, begin: datetime | None, end: datetime | None
    ) -> tuple[int, int]:
        """Offsets of a queue's messages stored from `begin` until before `end`."""
        first, last = state.begin, state.end
        if begin is not None:
            first = await self._offset(state.address, topic, state.queue_id, begin)
        if end is not None:
            last = await self._offset(state.address, topic, state.queue_id, end)
        return first, last

    async def tail(
        self, topic: str, last: int = 10, *, follow: bool = False
    ) -> AsyncIterator[ReceivedMessage]:
        """Yield the `last` messages of a topic, oldest first; with `follow` also new ones, indefinitely.

        Messages of one queue come in order, those of several as they are found. Raises `TopicNotFound`.
        """
        ends: dict[tuple[str, int], int] = {}
        newest: list[ReceivedMessage] = []
        for state in await self._topics.describe(topic):
            ends[state.broker, state.queue_id] = state.end
            newest += [each async for each in self._read(topic, state, state.end - last)]
        for message in sorted(newest, key=lambda message: message.stored_at)[-last:] if last else ():
            yield message
        while follow:
            await self._cluster.caller.sleep(_LOOK_AGAIN_S)
            for state in await self._topics.describe(topic):
                begin = ends.get((state.broker, state.queue_id), state.begin)
                ends[state.broker, state.queue_id] = state.end
                async for message in self._read(topic, state, begin):
                    yield message

    async def resend(self, message_id: str, group: str, topic: str | None = None) -> str:
        """Resend a message to one group only, through its retry topic. Returns the broker's id of the new one.

        Groups that broadcast, consume in order or by POP do not read their retry topic. Raises `MessageNotFound`, and
        `GroupNotFound` for a group without one.
        """
        message = await self.get(message_id, topic)
        retry = names.retry_topic(group)
        try:
            route = await self._topics.route(retry)
        except TopicNotFound as error:
            raise GroupNotFound(
                f"group {group!r} has no retry topic: it never had a consumer that retries",
                code=error.code,
                topic=retry,
            ) from None
        addresses = masters(route)
        address = addresses.get(message.queue.broker) or next(iter(addresses.values()), None)
        if address is None:
            raise RocketMQError(f"no broker with {retry!r} accepts messages", topic=retry)
        properties = properties_of(message)
        properties.setdefault(ORIGIN, self._cluster.caller.wire_name(message.topic))
        return await send_again(self._cluster, address, retry, message, properties)

    async def recheck(self, message_id: str) -> None:
        """Ask producers again about a half message that its broker gave up without a decision: by its id, or by the
        broker's id in `TRANS_CHECK_MAX_TIME_TOPIC`. For an open one, by the broker's id, the count of checks starts
        over.

        Raises `MessageNotFound`, and `BrokerError` if it was rechecked before or its transaction has ended.
        """
        place = ids.decode(message_id)
        if not isinstance(place, ids.OffsetId):
            message_id = (await self.get(message_id, names.UNDECIDED_TOPIC)).offset_message_id
            place = ids.decode(message_id)
            assert isinstance(place, ids.OffsetId), "the broker's id says where a message is"
        await self._cluster.ask(
            place.address, ResumeCheckHalfMessage(topic=names.UNDECIDED_TOPIC, msg_id=message_id)
        )

    def _read(self, topic: str, state: QueueState, begin: int) -> AsyncIterator[ReceivedMessage]:
        return read(self._cluster, topic, state, max(state.begin, begin), state.end)

    async def _offset(self, address: str, topic: str, queue_id: int, moment: datetime) -> int:
        ask = SearchOffsetByTimestamp(topic=topic, queue_id=queue_id, timestamp=_ms(moment, 0))
        return (await self._cluster.ask(address, ask)).offset

    async def _query(
        self,
        topic: str,
        key: str,
        count: int,
        begin_ms: int,
        end_ms: int,
        *,
        is_unique: bool = False,
        index_type: str | None = None,
    ) -> list[ReceivedMessage]:
        ask = QueryMessage(
            topic=topic,
            key=key,
            max_num=count,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            is_unique_key=is_unique,
            index_type=index_type,
        )
        found = []
        for broker, address in self._cluster.masters_in(await self._topics.route(topic)).items():
            found += await self._found(ask, broker, address)
        return found

    async def with_id(self, topic: str, message_id: str, broker: str, address: str) -> list[ReceivedMessage]:
        """The messages of a topic on one broker with a producer's id: several if it was resent."""
        ask = QueryMessage(
            topic=topic,
            key=message_id,
            max_num=_SAME_ID_MAX,
            begin_timestamp=0,
            end_timestamp=_FOREVER_MS,
            is_unique_key=True,
        )
        found = await self._found(ask, broker, address)
        return [message for message in found if message.message_id == message_id]

    async def _found(self, ask: QueryMessage, broker: str, address: str) -> list[ReceivedMessage]:
        reply = await self._cluster.ask_unless(ResponseCode.QUERY_NOT_FOUND, address, ask)
        return [self._message(record, broker) for record in _records(reply.body)] if reply is not None else []

    def _message(self, record: bytes, broker: str) -> ReceivedMessage:
        queue_id = int.from_bytes(record[_QUEUE_ID_AT : _QUEUE_ID_AT + 4])
        namespace = self._cluster.caller.namespace
        message = ReceivedMessage(record, None, MessageQueue("", broker, queue_id), namespace)
        return ReceivedMessage(record, None, MessageQueue(message.topic, broker, queue_id), namespace)


def _records(body: bytes) -> Iterator[bytes]:
    """Split consecutive records, each of which begins with its size."""
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4])
        if not (_QUEUE_ID_AT + 4 <= size <= len(body) - at):
            raise DecodeError(f"a record of {size} bytes at {at} of {len(body)}")
        yield body[at : at + size]
        at += size


def _ms(moment: datetime | None, otherwise: int) -> int:
    return otherwise if moment is None else round(moment.timestamp() * 1_000)
