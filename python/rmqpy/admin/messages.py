"""Single messages for an operator: by id, by key, by time."""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Final

from rmqpy._native import ReceivedMessage
from rmqpy.admin.link import Link, Part, master
from rmqpy.admin.reading import read
from rmqpy.admin.topics import Topics
from rmqpy.errors import ConfigError, DecodeError, MessageNotFound, RocketMQError
from rmqpy.message import MessageQueue
from rmqpy.protocol import ids
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.messages import QueryMessage, ViewMessageById
from rmqpy.protocol.requests.offsets import SearchOffsetByTimestamp

_FOREVER_MS: Final = (1 << 63) - 1
#: Bytes of a record before which its queue id stands: size, magic number, checksum.
_QUEUE_ID_AT: Final = 12


class Messages(Part):
    """The messages of one cluster."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._topics = Topics(link)

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
            try:
                record = (await self._link.ask(place.address, ask)).body
            except RocketMQError as error:
                if error.code != ResponseCode.SYSTEM_ERROR:
                    raise
            else:
                return _message(record, "")
        elif topic is None:
            raise ConfigError(
                f"{message_id!r} is no id of a broker", hint="a producer's id is found with its topic: --topic NAME"
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

    async def between(
        self, topic: str, begin: datetime | None = None, end: datetime | None = None
    ) -> AsyncIterator[ReceivedMessage]:
        """Messages of a topic stored from `begin` on and before `end`, queue by queue. Raises `TopicNotFound`."""
        for state in await self._topics.describe(topic):
            first, last = state.begin, state.end
            if begin is not None:
                first = await self._offset(state.address, topic, state.queue_id, begin)
            if end is not None:
                last = await self._offset(state.address, topic, state.queue_id, end)
            queue = MessageQueue(topic, state.broker, state.queue_id)
            async for message in read(self._link, state.address, queue, first, last):
                yield message

    async def _offset(self, address: str, topic: str, queue_id: int, moment: datetime) -> int:
        ask = SearchOffsetByTimestamp(topic=topic, queue_id=queue_id, timestamp=_ms(moment, 0))
        return (await self._link.ask(address, ask)).offset

    async def _query(
        self, topic: str, key: str, count: int, begin_ms: int, end_ms: int, *, is_unique: bool = False
    ) -> list[ReceivedMessage]:
        ask = QueryMessage(
            topic=topic,
            key=key,
            max_num=count,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            is_unique_key=is_unique,
        )
        found = []
        for broker in (await self._topics.route(topic)).broker_datas:
            address = master(broker)
            if address is None:
                continue
            try:
                body = (await self._link.ask(address, ask)).body
            except RocketMQError as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    continue
                raise
            found += [_message(record, broker.broker_name) for record in _records(body)]
        return found


def _records(body: bytes) -> Iterator[bytes]:
    """The records that stand one behind the other, each beginning with its size."""
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4])
        if not (_QUEUE_ID_AT + 4 <= size <= len(body) - at):
            raise DecodeError(f"a record of {size} bytes at {at} of {len(body)}")
        yield body[at : at + size]
        at += size


def _message(record: bytes, broker: str) -> ReceivedMessage:
    queue_id = int.from_bytes(record[_QUEUE_ID_AT : _QUEUE_ID_AT + 4])
    message = ReceivedMessage(record, None, MessageQueue("", broker, queue_id))
    return ReceivedMessage(record, None, MessageQueue(message.topic, broker, queue_id))


def _ms(moment: datetime | None, otherwise: int) -> int:
    return otherwise if moment is None else round(moment.timestamp() * 1_000)
