"""Endpoints for half messages: list undecided ones, ask producers again."""

from datetime import datetime
from typing import Final, NamedTuple

from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.connection import MISSING, Missing
from rmqpy.console.api.message_rows import row_of
from rmqpy.console.endpoints import change, value

#: Properties of a half message: its destination, and the group that decides.
_TOPIC: Final = "REAL_TOPIC"
_PRODUCER_GROUP: Final = "PGROUP"


class Half(NamedTuple):
    """An undecided half message."""

    #: The broker's id, for `/messages/{id}`.
    offset_message_id: str
    message_id: str
    #: Its topic after a commit.
    topic: str
    producer_group: str | None
    broker: str
    stored_at: datetime
    size: int
    preview: str


class Halves(NamedTuple):
    """Undecided half messages, oldest first."""

    halves: list[Half]
    #: The number of older ones that were not read.
    unscanned: int
    #: Unreachable brokers, which were not asked.
    missing: list[Missing]


@value("/half-messages", remembered=True)
async def half_messages(admin: AsyncAdmin) -> Halves:
    """List undecided half messages, at most the newest thousand of each broker."""
    found = await admin.half_messages()
    halves = []
    for message in found.messages:
        row, properties = row_of(message), message.properties
        halves.append(
            Half(
                row.offset_message_id,
                row.message_id,
                properties.get(_TOPIC, row.topic),
                properties.get(_PRODUCER_GROUP),
                row.broker,
                row.stored_at,
                row.size,
                row.preview,
            )
        )
    return Halves(halves, found.unscanned, list(dict.fromkeys(MISSING.get(()))))


@change("POST", "/half-messages/{message_id}/check")
async def check_half_message(admin: AsyncAdmin, message_id: str) -> None:
    """Ask the producers of a half message again, even if it was given up."""
    await admin.recheck_transaction(message_id)
