"""Endpoints for dead letters: list with causes, resend, optionally edited."""

import asyncio
import time
from datetime import datetime
from typing import Annotated, Final, NamedTuple

from rmqpy._native import ReceivedMessage
from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.dead_letters import DeadLetterCount
from rmqpy.admin.sending import ORIGIN
from rmqpy.console.api.message_rows import MessageRow, row_of
from rmqpy.console.api.topics import body_of
from rmqpy.console.bodies import require_bodies
from rmqpy.console.endpoints import change, rows
from rmqpy.console.recent import recent
from rmqpy.console.request_body import LONG_BYTES_MAX
from rmqpy.console.schema import Between, Chars
from rmqpy.errors import ConfigError, RocketMQError, TopicNotFound
from rmqpy.protocol import names

#: The most dead letters listed for a group, newest first; and the most that one request resends.
LISTED_MAX: Final = 1_000
RESENT_MAX: Final = 100
#: The most seconds one request may take to send.
_SENDING_S: Final = 40.0


class DeadLetter(NamedTuple):
    """A dead letter."""

    #: The broker's id, for `/messages/{id}`.
    offset_message_id: str
    message_id: str
    #: Its original topic.
    topic: str
    #: The number of its deliveries.
    attempts: int
    #: The last error of its handler; None if the consumer does not report it.
    cause: str | None
    keys: list[str]
    stored_at: datetime
    size: int
    preview: str
    broker: str
    queue_id: int
    offset: int
    #: When it was last resent; None if never.
    resent_at: datetime | None = None


class Chosen(NamedTuple):
    """One dead letter, by its position, with an optional new body."""

    broker: str
    queue_id: int
    offset: int
    body: str | None = None
    is_base64: bool = False


class Resent(NamedTuple):
    """The result for one of them."""

    broker: str
    queue_id: int
    offset: int
    #: The broker's id of the new message; None if it was not sent.
    sent_as: str | None
    fault: str | None


@rows("/dead-letters", sort="-messages")
async def dead_letters(admin: AsyncAdmin) -> list[DeadLetterCount]:
    """List every group with dead letters, and their number."""
    return await recent(admin.dead_letters, "dead letters")


async def _with_resends(admin: AsyncAdmin, page: list[DeadLetter], group: str) -> list[DeadLetter]:
    """Add resend times, which take several requests each, to one page."""
    completed = []
    for each in page:
        queue, message = await admin.dead_letter(group, each.broker, each.queue_id, each.offset)
        resent = await admin.resent(group, queue, message)
        completed.append(each._replace(resent_at=resent[-1].stored_at if resent else None))
    return completed


@rows("/dead-letters/{group}", sort="-stored_at", complete=_with_resends)
async def dead_letters_of(admin: AsyncAdmin, group: str) -> list[DeadLetter]:
    """List dead letters of one group, at most the newest thousand, with causes and resend times."""
    topic = names.dead_letter_topic(group)
    try:
        found = await admin.search(topic, scan_max=LISTED_MAX, found_max=LISTED_MAX)
    except TopicNotFound:
        # A group that never had any has no topic for them.
        await admin.group(group)
        return []
    return [_row(message, row_of(message)) for message in found.messages]


def _row(message: ReceivedMessage, row: MessageRow) -> DeadLetter:
    properties = message.properties
    return DeadLetter(
        row.offset_message_id,
        row.message_id,
        properties.get(ORIGIN, row.topic),
        # The message carries the number of the next delivery, which never happens.
        message.delivery_attempt - 1,
        properties.get(names.CONSUME_ERROR),
        row.keys,
        row.stored_at,
        row.size,
        row.preview,
        row.broker,
        row.queue_id,
        row.offset,
    )


@change("POST", "/dead-letters/{group}/resend", body_bytes_max=LONG_BYTES_MAX)
async def resend(
    admin: AsyncAdmin,
    group: str,
    letters: Annotated[list[Chosen], Chars(RESENT_MAX)],
    to_origin: bool = False,
    rate: Annotated[int, Between(1, 1_000)] = 100,
    find: Annotated[str, Chars(1_000)] | None = None,
    replace: Annotated[str, Chars(1_000)] = "",
) -> list[Resent]:
    """Resend dead letters, to their group only or to their original topic; a result for each. `find` is replaced in
    every body; messages without it are not sent."""
    if find is not None:
        require_bodies("an edit of bodies")
    if len(letters) > rate * _SENDING_S:
        raise ConfigError(
            f"{len(letters)} messages at {rate} a second take too long",
            hint="resend them in several requests",
        )
    results = []
    begun = time.monotonic()
    for sent, letter in enumerate(letters):
        await asyncio.sleep(max(0.0, begun + sent / rate - time.monotonic()))
        try:
            queue, message = await admin.dead_letter(group, letter.broker, letter.queue_id, letter.offset)
            body = None if letter.body is None else body_of(letter.body, letter.is_base64)
            if find:
                body = _replaced(message.body if body is None else body, find, replace)
            sent_as: str | None = await admin.resend(group, queue, message, to_origin=to_origin, body=body)
            fault = None
        except RocketMQError as error:
            sent_as, fault = None, str(error)
        results.append(Resent(letter.broker, letter.queue_id, letter.offset, sent_as, fault))
    return results


def _replaced(body: bytes, find: str, replace: str) -> bytes:
    """Replace a text in the body. Raises `ConfigError` if the body does not contain it."""
    before, after = body_of(find, False), body_of(replace, False)
    if before not in body:
        raise ConfigError(f"the body does not contain {find!r}")
    return body.replace(before, after)
