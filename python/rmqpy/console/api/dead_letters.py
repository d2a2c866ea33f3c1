"""Dead letters: groups that have some, those of one group with their causes; sent again, edited if need be."""

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
from rmqpy.console.request_body import LONG_BYTES_MAX
from rmqpy.console.schema import Between, Chars
from rmqpy.errors import ConfigError, RocketMQError, TopicNotFound
from rmqpy.protocol import names

#: Dead letters of one group that are listed, the newest ones; and that one request sends again.
LISTED_MAX: Final = 1_000
RESENT_MAX: Final = 100
#: Seconds that one request may take to send.
_SENDING_S: Final = 40.0


class DeadLetter(NamedTuple):
    """A message that its group gave up."""

    #: The broker's id: `/messages/{id}` has it whole.
    offset_message_id: str
    message_id: str
    #: Where it was sent to first.
    topic: str
    #: Deliveries it had.
    attempts: int
    #: What its handler raised at last; None where its consumer does not tell.
    cause: str | None
    keys: list[str]
    stored_at: datetime
    size: int
    preview: str
    broker: str
    queue_id: int
    offset: int
    #: When it was sent again last; None where it was not.
    resent_at: datetime | None = None


class Chosen(NamedTuple):
    """One dead letter, by its place, and the body that takes the place of its own, where one does."""

    broker: str
    queue_id: int
    offset: int
    body: str | None = None
    is_base64: bool = False


class Resent(NamedTuple):
    """What became of one of them."""

    broker: str
    queue_id: int
    offset: int
    #: The broker's id of the new message; None where it was not sent.
    sent_as: str | None
    fault: str | None


@rows("/dead-letters", sort="-messages")
async def dead_letters(admin: AsyncAdmin) -> list[DeadLetterCount]:
    """Every group that has dead letters, and how many."""
    return await admin.dead_letters()


async def _with_resends(admin: AsyncAdmin, page: list[DeadLetter], group: str) -> list[DeadLetter]:
    """When each was sent again: some questions each, for one page."""
    completed = []
    for each in page:
        queue, message = await admin.dead_letter(group, each.broker, each.queue_id, each.offset)
        resent = await admin.resent(group, queue, message)
        completed.append(each._replace(resent_at=resent[-1].stored_at if resent else None))
    return completed


@rows("/dead-letters/{group}", sort="-stored_at", complete=_with_resends)
async def dead_letters_of(admin: AsyncAdmin, group: str) -> list[DeadLetter]:
    """Dead letters of one group, the newest thousand of more, with their causes and when they were sent again."""
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
        # Of the next delivery, which it does not get.
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
    """Send dead letters again, to their group alone or to the topic they were sent to first; a result for each. Where
    `find` is given, it is replaced in every body, and one without it is not sent."""
    if find is not None:
        require_bodies("an edit of bodies")
    if len(letters) > rate * _SENDING_S:
        raise ConfigError(
            f"{len(letters)} messages at {rate} a second take too long", hint="send them in several requests"
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
    """The body with another text in the place of one. Raises `ConfigError` where it has no such text."""
    before, after = body_of(find, False), body_of(replace, False)
    if before not in body:
        raise ConfigError(f"the body does not have {find!r}")
    return body.replace(before, after)
