"""Endpoints for the overview: rates, largest lags, brokers, dead letters, health checks."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from rmqpy.admin.backlogs import GroupSummary
from rmqpy.admin.causes import by_cause
from rmqpy.admin.checks import CheckResult
from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.cluster import BrokerState
from rmqpy.admin.connection import MISSING, Missing, note_missing
from rmqpy.admin.dead_letters import DeadLetterCount
from rmqpy.console.api.groups import GroupRow, row_of, with_times
from rmqpy.console.endpoints import events, value
from rmqpy.console.recent import recent

#: The number of groups and dead letters on the overview.
WORST: Final = 5
_EVERY_S: Final = 2.0


class Overview(NamedTuple):
    """The cluster at a glance."""

    in_per_second: float
    out_per_second: float
    topics: int
    groups: int
    #: Pending messages of all groups.
    lag: int
    worst_groups: list[GroupRow]
    dead_letters: int
    worst_dead_letters: list[DeadLetterCount]
    brokers: list[BrokerState]
    #: Unreachable brokers, whose groups, dead letters and topics are missing.
    missing: list[Missing]


class Rates(NamedTuple):
    """The values that change every second."""

    in_per_second: float
    out_per_second: float
    brokers: list[BrokerState]


async def _rates(admin: AsyncAdmin) -> Rates:
    brokers = await admin.brokers(with_gone=True)
    into = sum(each.in_per_second or 0 for each in brokers)
    return Rates(into, sum(each.out_per_second or 0 for each in brokers), brokers)


@value("/overview", remembered=True)
async def overview(admin: AsyncAdmin) -> Overview:
    """Return the overview: rates, largest lags, dead letters, brokers."""
    rates = await _rates(admin)
    # Without a broker there is nothing to ask.
    is_alone = not any(each.answers for each in rates.brokers)
    groups: list[GroupSummary] = []
    letters: list[DeadLetterCount] = []
    topics: list[str] = []
    if not is_alone:
        groups, letters, topics = await asyncio.gather(
            recent(admin.group_summaries, "groups"),
            recent(admin.dead_letters, "dead letters"),
            admin.topics(),
        )
    behind = sorted((each for each in groups if each.lag), key=lambda each: -each.lag)
    given_up = sorted((each for each in letters if each.messages), key=lambda each: -each.messages)
    return Overview(
        rates.in_per_second,
        rates.out_per_second,
        len(topics),
        len(groups),
        sum(each.lag for each in groups),
        await with_times(admin, [row_of(each) for each in behind[:WORST]]),
        sum(each.messages for each in letters),
        given_up[:WORST],
        rates.brokers,
        list(dict.fromkeys(MISSING.get(()))),
    )


@events("/overview/events")
async def overview_events(admin: AsyncAdmin) -> AsyncIterator[Rates]:
    """Stream messages a second and the state of brokers, every two seconds."""
    # A silent broker does not delay the data of the others.
    note_missing()
    while True:
        yield await _rates(admin)
        await asyncio.sleep(_EVERY_S)


@value("/health", remembered=True)
async def health(admin: AsyncAdmin) -> list[CheckResult]:
    """Return checks of name servers and brokers, with advice for problems; of each problem its cause only."""
    return by_cause(await recent(admin.health, "health"))
