"""Typed topics: a topic whose messages are values of one type, for both producers.

Owns nothing: each call encodes the value and continues as the producer's call of the same name. Threads: the
producer's.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar, Unpack

from rmqpy.client.codecs.codec import Codec
from rmqpy.message import MessageFields, MessageQueue, ReceivedMessage, SendResult

if TYPE_CHECKING:
    from rmqpy._native import SendFuture
    from rmqpy.client.producer.producer import Producer
    from rmqpy.client.producer.producer_async import AsyncProducer
    from rmqpy.client.producer.transactions.transaction import AsyncTransaction, Transaction

T = TypeVar("T")


class SendSettings(MessageFields, total=False):
    """The keywords of a send to a typed topic."""

    queue: MessageQueue | None
    timeout: float | timedelta | None


class RequestSettings(MessageFields, total=False):
    """The keywords of a request to a typed topic."""

    queue: MessageQueue | None
    timeout: float | timedelta


class TypedTopic(Generic[T]):
    """A topic of a `Producer` whose messages are values of one type; made by `Producer.typed`."""

    def __init__(self, producer: Producer, topic: str, codec: Codec) -> None:
        self._producer = producer
        self.topic = topic
        self.codec = codec

    def send(self, value: T, **settings: Unpack[SendSettings]) -> SendResult:
        """As `Producer.send`. Raises `TypeError` or `ValueError` for a value that cannot be encoded."""
        return self._producer.send(self.topic, self.codec.encode(value), **settings)

    def submit(self, value: T, **settings: Unpack[SendSettings]) -> SendFuture:
        """As `Producer.submit`."""
        return self._producer.submit(self.topic, self.codec.encode(value), **settings)

    def request(self, value: T, **settings: Unpack[RequestSettings]) -> ReceivedMessage:
        """As `Producer.request`."""
        return self._producer.request(self.topic, self.codec.encode(value), **settings)

    def transaction(self, value: T, **fields: Unpack[MessageFields]) -> Transaction:
        """As `Producer.transaction`."""
        return self._producer.transaction(self.topic, self.codec.encode(value), **fields)


class AsyncTypedTopic(Generic[T]):
    """A topic of an `AsyncProducer` whose messages are values of one type; made by `AsyncProducer.typed`."""

    def __init__(self, producer: AsyncProducer, topic: str, codec: Codec) -> None:
        self._producer = producer
        self.topic = topic
        self.codec = codec

    async def send(self, value: T, **settings: Unpack[SendSettings]) -> SendResult:
        """As `TypedTopic.send`."""
        return await self._producer.send(self.topic, self.codec.encode(value), **settings)

    async def submit(self, value: T, **settings: Unpack[SendSettings]) -> asyncio.Future[SendResult]:
        """As `AsyncProducer.submit`."""
        return await self._producer.submit(self.topic, self.codec.encode(value), **settings)

    async def request(self, value: T, **settings: Unpack[RequestSettings]) -> ReceivedMessage:
        """As `AsyncProducer.request`."""
        return await self._producer.request(self.topic, self.codec.encode(value), **settings)

    def transaction(self, value: T, **fields: Unpack[MessageFields]) -> AsyncTransaction:
        """As `AsyncProducer.transaction`."""
        return self._producer.transaction(self.topic, self.codec.encode(value), **fields)
