"""Endpoints for topics: list, details, newest and live messages, create, delete, send."""

import asyncio
import base64 as encoding
import binascii
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, NamedTuple

from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.connection import Missing, note_missing
from rmqpy.admin.topics import Perm, QueueState, TopicSummary, TopicType
from rmqpy.admin.traffic import Flow
from rmqpy.client.producer.producer_async import AsyncProducer
from rmqpy.console.api.history import lines
from rmqpy.console.api.message_rows import MessageRow, row_of
from rmqpy.console.endpoints import change, events, rows, value
from rmqpy.console.request_body import LONG_BYTES_MAX
from rmqpy.console.schema import Between
from rmqpy.errors import ConfigError
from rmqpy.message import Message
from rmqpy.protocol.topics import TopicConfig


class TopicDetail(NamedTuple):
    """One topic."""

    settings: Mapping[str, TopicConfig]
    queues: list[QueueState]
    #: Messages in, then consumption by each group.
    flows: list[Flow]
    #: Unreachable brokers, whose data is missing.
    missing: list[Missing]


class SentMessage(NamedTuple):
    """A sent message."""

    message_id: str
    offset_message_id: str
    broker: str
    queue_id: int
    offset: int


Queues = Annotated[int, Between(1, 1024)]
Newest = Annotated[int, Between(1, 200)]


class TopicRow(NamedTuple):
    """One topic in a list. Without any broker that answers, its settings are unknown."""

    name: str
    type: str | None = None
    read_queues: int | None = None
    write_queues: int | None = None
    permission: str | None = None
    brokers: list[str] = []  # noqa: RUF012 - never changed
    #: Recent messages a second, oldest first; None where a broker does not know them.
    recent: list[float | None] | None = None


async def _completed(admin: AsyncAdmin, page: list[TopicRow], system: bool = False) -> list[TopicRow]:
    """Add lines, and settings where they are unknown, to one page."""
    brief = [row.name for row in page if row.type is None]
    recent, settings = await asyncio.gather(
        lines(admin, "in", [row.name for row in page]), admin.topic_summaries(brief) if brief else _nothing()
    )
    known = {each.name: TopicRow(*each) for each in settings}
    return [known.get(row.name, row)._replace(recent=recent.get(row.name)) for row in page]


async def _nothing() -> list[TopicSummary]:
    return []


async def _names(admin: AsyncAdmin, system: bool = False) -> list[TopicRow]:
    return [TopicRow(name) for name in await admin.topics(with_system=system)]


@rows("/topics", sort="name", complete=_completed, brief=_names)
async def topics(admin: AsyncAdmin, system: bool = False) -> list[TopicRow]:
    """List every topic with its settings; system topics only on request."""
    return [TopicRow(*each) for each in await admin.topic_summaries(with_system=system)]


@value("/topics/{topic}")
async def topic(admin: AsyncAdmin, topic: str) -> TopicDetail:
    """Return one topic: queues, messages in, and consumption by each group."""
    missing = note_missing()
    settings, queues, flows = await asyncio.gather(
        admin.topic_settings(topic), admin.topic(topic), admin.topic_status(topic)
    )
    return TopicDetail(settings, queues, flows, list(dict.fromkeys(missing)))


@change("POST", "/topics")
async def create_topic(
    admin: AsyncAdmin,
    topic: str,
    queues: Queues = 8,
    permission: Perm = "RW",
    type: TopicType = "NORMAL",  # noqa: A002 - its name in the API
) -> list[str]:
    """Create a topic on every broker. Returns their names."""
    return await admin.create_topic(
        topic, read_queues=queues, write_queues=queues, perm=permission, message_type=type
    )


@change("DELETE", "/topics/{topic}")
async def delete_topic(admin: AsyncAdmin, topic: str) -> list[str]:
    """Delete a topic and its messages. Returns the brokers that had it."""
    return await admin.delete_topic(topic)


@value("/topics/{topic}/newest")
async def topic_newest(admin: AsyncAdmin, topic: str, count: Newest = 20) -> list[MessageRow]:
    """Return the newest messages of a topic, newest first, of reachable brokers."""
    note_missing()
    return [row_of(each) async for each in admin.tail(topic, count)][::-1]


@events("/topics/{topic}/tail")
async def topic_tail(admin: AsyncAdmin, topic: str) -> AsyncIterator[MessageRow]:
    """Stream new messages of a topic."""
    async for each in admin.tail(topic, 0, follow=True):
        yield row_of(each)


@change("POST", "/topics/{topic}/messages", body_bytes_max=LONG_BYTES_MAX)
async def send_message(
    admin: AsyncAdmin,
    topic: str,
    body: str,
    is_base64: bool = False,
    tag: str | None = None,
    keys: list[str] | None = None,
    properties: dict[str, str] | None = None,
) -> SentMessage:
    """Send a message; its body is text, or bytes in base64."""
    # A send would create an unknown topic: a typing mistake must not.
    await admin.route(topic)
    try:
        message = Message(
            topic, body_of(body, is_base64), tag=tag, keys=keys or (), properties=properties or {}
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    async with AsyncProducer(admin.client_config) as producer:
        sent = await producer.send(message)
    return SentMessage(
        sent.message_id, sent.offset_message_id, sent.queue.broker, sent.queue.queue_id, sent.queue_offset
    )


def body_of(text: str, is_base64: bool) -> bytes:
    """The bytes of a body given as text or in base64."""
    if not is_base64:
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise ConfigError("the body has a lone surrogate", hint="send it in base64") from None
    try:
        return encoding.b64decode(text, validate=True)
    except binascii.Error:
        raise ConfigError("the body is not valid base64", hint="for text set is_base64 to false") from None
