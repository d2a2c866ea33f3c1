"""Timed messages that wait: by topic, and by when they are due."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from rmqpy.admin.client import AsyncAdmin
from rmqpy.console.endpoints import rows

_LATER: Final = "later"


class Timed(NamedTuple):
    """Timed messages of one topic that wait at all brokers."""

    topic: str
    waiting: int
    #: Seconds from now to how many are due within them, and not within the next smaller number; the rest under `later`.
    due_within: Mapping[str, int]


@rows("/timers", sort="-waiting")
async def timers(admin: AsyncAdmin) -> list[Timed]:
    """Timed messages that wait, by topic and by when they are due; brokers of the original do not say when."""
    return [
        Timed(
            each.topic,
            each.waiting,
            {_LATER if within is None else str(within): count for within, count in each.due_within.items()},
        )
        for each in await admin.pending_timers()
    ]
