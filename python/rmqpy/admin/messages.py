"""Single messages for an operator: by id, by key, by time, the newest; sent once more to a group."""

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

#: Messages of one id that are looked at: each retry of a consumer makes one.
_SAME_ID_MAX: Final = 64
_FOREVER_MS: Final = (1 << 63) - 1
#: Bytes of a record before which its queue id stands: size, magic number, checksum.
_QUEUE_ID_AT: Final = 12
#: How long the end of a topic is left alone before it is looked at again.
_LOOK_AGAIN_S: Final = 0.25


class Messages(Part):
    """The messages of one cluster."""

    def __init__(self, cluster: AdminConnection) -> None:
        super().__init__(cluster)
        self._topics = Topics(cluster)

    async def get(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """One message: by the broker's id, or with its topic by the id its producer gave it.

        The broker's id names an address, and that is where it is asked for. Raises `MessageNotFound`.
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
                f"{message_id!r} is no id of a broker",
                hint="a producer's id is found with its topic: --topic NAME",
            )
        raise MessageNotFound(f"there is no message {message_id!r}", topic=topic)

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin: datetime | None = None,
        end: datetime | None = None,
        count: int = 32,
    ) -> list[ReceivedMessage]:
        """Messages of a topic that carry a key, newest first, `count` of each broker at most.

        Raises `TopicNotFound`.
        """
        found = await self._query(topic, key, count, _ms(begin, 0), _ms(end, _FOREVER_MS))
        # Brokers find by a hash of the key.
        hits = [message for message in found if key in message.keys]
        return sorted(hits, key=lambda message: message.stored_at, reverse=True)

    async def by_tag(self, topic: str, tag: str, *, count: int = 32) -> list[ReceivedMessage]:
        """Messages of a topic that carry a tag, newest first, `count` of each broker at most.

        Raises `TopicNotFound`.
        """
        found = await self._query(topic, tag, count, 0, _FOREVER_MS, index_type="T")
        hits = [message for message in found if message.tag == tag]
        return sorted(hits, key=lambda message: message.stored_at, reverse=True)

    async def between(
        self, topic: str, begin: datetime | None = None, end: datetime | None = None
    ) -> AsyncIterator[ReceivedMessage]:
        """Messages of a topic stored from `begin` on and before `end`, queue by queue. Raises `TopicNotFound`."""
        for state in await self._topics.describe(topic):
            first, last = await self.range_between(topic, state, begin, end)
            async for message in read(self._cluster, topic, state, first, last):
                yield message

    async def range_between(
        self, topic: str, state: QueueState, begin: datetime | None, end: datetime | None
    ) -> tuple[int, int]:
        """Offsets of a queue's messages that were stored from `begin` on and before `end`."""
        first, last = state.begin, state.end
        if begin is not None:
            first = await self._offset(state.address, topic, state.queue_id, begin)
        if end is not None:
            last = await self._offset(state.address, topic, state.queue_id, end)
        return first, last

    async def tail(
        self, topic: str, last: int = 10, *, follow: bool = False
    ) -> AsyncIterator[ReceivedMessage]:
        """The `last` messages of a topic, oldest first; with `follow` those that come in from then on, for ever.

        Of one queue they come in their order, of several as they are found. Raises `TopicNotFound`.
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
        """Send a message once more, to one group alone, through its retry topic; the broker's id of the new one.

        A group that consumes in order, or broadcasts, takes nothing from there. Raises `MessageNotFound`, and
        `GroupNotFound` for a group that no such consumer has been in.
        """
        message = await self.get(message_id, topic)
        retry = names.retry_topic(group)
        try:
            route = await self._topics.route(retry)
        except TopicNotFound as error:
            raise GroupNotFound(
                f"group {group!r} has no retry topic: no consumer that retries has been in it yet",
                code=error.code,
                topic=retry,
            ) from None
        addresses = masters(route)
        address = addresses.get(message.queue.broker) or next(iter(addresses.values()), None)
        if address is None:
            raise RocketMQError(f"no broker that has {retry!r} takes messages", topic=retry)
        properties = properties_of(message)
        properties.setdefault(ORIGIN, self._cluster.caller.wire_name(message.topic))
        return await send_again(self._cluster, address, retry, message, properties)

    async def recheck(self, message_id: str) -> None:
        """Have producers asked again about a half message that nobody decided about, and that its broker gave up: by
        its id, or by that which the broker gave it in `TRANS_CHECK_MAX_TIME_TOPIC`. One that is open, by the broker's
        id, is asked about as if it had not been yet.

        Raises `MessageNotFound`, and `BrokerError` where it was taken up again before, or its transaction has ended.
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
        """The messages of a topic at one broker that have an id of a producer: several, where it was sent again."""
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
    """The records that stand one behind the other, each beginning with its size."""
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4])
        if not (_QUEUE_ID_AT + 4 <= size <= len(body) - at):
            raise DecodeError(f"a record of {size} bytes at {at} of {len(body)}")
        yield body[at : at + size]
        at += size


def _ms(moment: datetime | None, otherwise: int) -> int:
    return otherwise if moment is None else round(moment.timestamp() * 1_000)
