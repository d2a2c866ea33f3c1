"""Endpoints for pending timed messages, by topic and due time."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from rmqpy.admin.client import AsyncAdmin
from rmqpy.console.endpoints import rows

_LATER: Final = "later"


class Timed(NamedTuple):
    """Pending timed messages of one topic over all brokers."""

    topic: str
    waiting: int
    #: Seconds from now → messages due within them, but not within the next smaller number; the rest under `later`.
    due_within: Mapping[str, int]


@rows("/timers", sort="-waiting")
async def timers(admin: AsyncAdmin) -> list[Timed]:
    """Count pending timed messages by topic and due time; Apache's brokers do not report due times."""
    return [
        Timed(
            each.topic,
            each.waiting,
            {_LATER if within is None else str(within): count for within, count in each.due_within.items()},
        )
        for each in await admin.pending_timers()
    ]
