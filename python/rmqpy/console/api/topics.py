"""Topics: their list, one of them with its queues and traffic; newest messages and new ones; made, deleted, sent to."""

import asyncio
import base64 as encoding
import binascii
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, NamedTuple

from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.connection import Missing, note_missing
from rmqpy.admin.topics import Perm, QueueState, TopicSummary, TopicType
from rmqpy.admin.traffic import Flow
from rmqpy.client.producer_async import AsyncProducer
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
    #: What came in, then what each group consumed.
    flows: list[Flow]
    #: Brokers whose part is missing, since they are away.
    missing: list[Missing]


class SentMessage(NamedTuple):
    """A message that was sent."""

    message_id: str
    offset_message_id: str
    broker: str
    queue_id: int
    offset: int


Queues = Annotated[int, Between(1, 1024)]
Newest = Annotated[int, Between(1, 200)]


@rows("/topics", sort="name")
async def topics(admin: AsyncAdmin, system: bool = False) -> list[TopicSummary]:
    """Every topic with its settings; topics of the system only if asked for."""
    return await admin.topic_summaries(with_system=system)


@value("/topics/{topic}")
async def topic(admin: AsyncAdmin, topic: str) -> TopicDetail:
    """One topic: its queues, what came in, and what each group consumed of it."""
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
    """Make a topic on every broker; the names of these."""
    return await admin.create_topic(
        topic, read_queues=queues, write_queues=queues, perm=permission, message_type=type
    )


@change("DELETE", "/topics/{topic}")
async def delete_topic(admin: AsyncAdmin, topic: str) -> list[str]:
    """Delete a topic and its messages; the names of the brokers that had it."""
    return await admin.delete_topic(topic)


@value("/topics/{topic}/newest")
async def topic_newest(admin: AsyncAdmin, topic: str, count: Newest = 20) -> list[MessageRow]:
    """The newest messages of a topic, newest first, of brokers that answer: the topic tells which are away."""
    note_missing()
    return [row_of(each) async for each in admin.tail(topic, count)][::-1]


@events("/topics/{topic}/tail")
async def topic_tail(admin: AsyncAdmin, topic: str) -> AsyncIterator[MessageRow]:
    """Messages of a topic as they come in."""
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
    # A topic that is not there would be made: a typing mistake must not.
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
    """The bytes of a body that is given as text, or in base64."""
    if not is_base64:
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise ConfigError("the body has half of a character", hint="send it in base64") from None
    try:
        return encoding.b64decode(text, validate=True)
    except binascii.Error:
        raise ConfigError("the body is no base64", hint="send text with is_base64 false") from None
