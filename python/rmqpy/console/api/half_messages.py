"""Half messages: those that wait for a decision, and their producers asked again."""

from datetime import datetime
from typing import Final, NamedTuple

from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.connection import MISSING, Missing
from rmqpy.console.api.message_rows import row_of
from rmqpy.console.endpoints import change, value

#: Properties of a half: where it is to go, and who may decide.
_TOPIC: Final = "REAL_TOPIC"
_PRODUCER_GROUP: Final = "PGROUP"


class Half(NamedTuple):
    """A message whose producer has not decided yet."""

    #: The broker's id: `/messages/{id}` has it whole.
    offset_message_id: str
    message_id: str
    #: Where it goes if it is committed.
    topic: str
    producer_group: str | None
    broker: str
    stored_at: datetime
    size: int
    preview: str


class Halves(NamedTuple):
    """Half messages that are open, oldest first."""

    halves: list[Half]
    #: Older ones that were not looked at.
    unscanned: int
    #: Brokers that were not asked, since they are away.
    missing: list[Missing]


@value("/half-messages", remembered=True)
async def half_messages(admin: AsyncAdmin) -> Halves:
    """Half messages that wait for their producers to commit or roll back, the newest thousand of each broker."""
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
    """Have the producers of a half message asked again, also of one that was given up."""
    await admin.recheck_transaction(message_id)
