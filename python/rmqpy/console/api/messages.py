"""Endpoints for messages: search by time and text, by key, one by id, and its trace."""

from datetime import datetime
from typing import Annotated, NamedTuple

from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.search import FOUND_MAX, SCAN_MAX, Unscanned
from rmqpy.admin.traces import Step
from rmqpy.console.api.message_rows import MessageDetail, MessageRow, detail_of, row_of
from rmqpy.console.bodies import require_bodies
from rmqpy.console.endpoints import value
from rmqpy.console.schema import Between, Chars
from rmqpy.errors import MessageNotFound, TopicNotFound

Text = Annotated[str, Chars(1_000)]


class SearchResult(NamedTuple):
    """Results of a search, newest first, and its range."""

    messages: list[MessageRow]
    scanned: int
    #: Offsets that were not searched; empty if all were.
    unscanned: list[Unscanned]


@value("/messages")
async def search(
    admin: AsyncAdmin,
    topic: str,
    text: Text | None = None,
    tag: str | None = None,
    begin: datetime | None = None,
    end: datetime | None = None,
    scan_max: Annotated[int, Between(1, SCAN_MAX)] = 10_000,
    found_max: Annotated[int, Between(1, FOUND_MAX)] = 100,
) -> SearchResult:
    """Search messages of a topic by time, tag and text, with a limit, and report what was not searched."""
    if text is not None:
        require_bodies("a search for text")
    found = await admin.search(
        topic, text=text, tag=tag, begin=begin, end=end, scan_max=scan_max, found_max=found_max
    )
    return SearchResult([row_of(each) for each in found.messages], found.scanned, found.unscanned)


@value("/messages/by-key")
async def by_key(
    admin: AsyncAdmin,
    topic: str,
    key: Text,
    begin: datetime | None = None,
    end: datetime | None = None,
    count: Annotated[int, Between(1, 64)] = 32,
) -> list[MessageRow]:
    """Return messages of a topic with a key, newest first."""
    found = await admin.messages_by_key(topic, key, begin=begin, end=end, count=count)
    return [row_of(each) for each in found]


@value("/messages/{message_id}")
async def message(admin: AsyncAdmin, message_id: str, topic: str | None = None) -> MessageDetail:
    """Return one message, by the broker's id, or with its topic by the producer's."""
    return detail_of(await admin.message(message_id, topic))


@value("/messages/{message_id}/trace")
async def trace(admin: AsyncAdmin, message_id: str) -> list[Step]:
    """Return the trace of a message by its producer's id, in order of time; empty without one."""
    try:
        return await admin.trace(message_id)
    except (MessageNotFound, TopicNotFound):
        return []
