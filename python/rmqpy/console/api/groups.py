"""Groups: their list with lag, one with queues, members and what they disagree about; offsets previewed and reset."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from rmqpy.admin.backlogs import GroupSummary
from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.connection import Missing, note_missing
from rmqpy.admin.groups import Member, Move, Place, Progress, disagreements
from rmqpy.config.ends import End
from rmqpy.console.endpoints import change, rows, value
from rmqpy.errors import ConfigError, RocketMQError
from rmqpy.protocol.requests.groups import SubscriptionGroup


class Disagreement(NamedTuple):
    """Members that subscribe to the same; more than one of these means that the group is set up wrong."""

    client_ids: list[str]
    subscriptions: Mapping[str, str]


class GroupRow(NamedTuple):
    """One group in a list."""

    group: str
    lag: int
    topics: int
    retry_max: int
    is_enabled: bool
    brokers: list[str]
    #: How long the oldest message that waits has been there, of the queue furthest behind; None unless some wait.
    behind_ms: int | None = None


class GroupDetail(NamedTuple):
    """One group."""

    settings: Mapping[str, SubscriptionGroup]
    progress: list[Progress]
    members: list[Member]
    #: Empty while all members subscribe to the same.
    disagreements: list[Disagreement]
    #: Brokers whose part is missing, since they are away.
    missing: list[Missing]


class Stack(NamedTuple):
    """What the threads of a member do."""

    text: str


#: Groups of one page that are asked about at once.
_AT_ONCE: Final = 8


async def with_times(admin: AsyncAdmin, page: list[GroupRow], system: bool = False) -> list[GroupRow]:
    """How long messages wait: some questions for each group, for one page, some groups at once."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def timed(row: GroupRow) -> GroupRow:
        if not row.lag:
            return row
        async with turns:
            try:
                # It was in the list a moment ago: looking for it again would ask for every group.
                progress = await admin.known_progress(row.group)
            except RocketMQError:
                # It has gone meanwhile, or a broker has: its own page says so.
                return row
        return row._replace(behind_ms=max((each.behind_ms for each in progress), default=0))

    return list(await asyncio.gather(*map(timed, page)))


@rows("/groups", sort="-lag", complete=with_times)
async def groups(admin: AsyncAdmin, system: bool = False) -> list[GroupRow]:
    """Every group with its lag; groups of the system only if asked for."""
    return [row_of(each) for each in await admin.group_summaries(with_system=system)]


def row_of(group: GroupSummary) -> GroupRow:
    """A group as a row."""
    return GroupRow(*group)


@value("/groups/{group}")
async def group(admin: AsyncAdmin, group: str) -> GroupDetail:
    """One group: lag of each queue in messages and in time, members, and whether they subscribe to the same."""
    missing = note_missing()
    settings, progress, members = await asyncio.gather(
        admin.group(group), admin.progress(group), admin.members(group)
    )
    found = disagreements(members)
    return GroupDetail(
        settings,
        progress,
        members,
        [Disagreement(*each) for each in found] if len(found) > 1 else [],
        list(dict.fromkeys(missing)),
    )


@value("/groups/{group}/stack")
async def group_stack(admin: AsyncAdmin, group: str, client_id: str) -> Stack:
    """What the threads of one member do now, as its language prints it."""
    return Stack(await admin.stack(group, client_id))


@value("/groups/{group}/offsets/preview")
async def preview_offsets(
    admin: AsyncAdmin,
    group: str,
    topic: str,
    to: End | None = None,
    time: datetime | None = None,
    offset: int | None = None,
    broker: str | None = None,
    queue_id: int | None = None,
) -> list[Move]:
    """Where a reset would put the group, queue by queue; nothing moves."""
    place = _place(to, time, offset)
    return await admin.reset_offsets(
        group, topic, place, broker=broker, queue_id=queue_id, offset=offset, dry_run=True
    )


@change("POST", "/groups/{group}/offsets")
async def reset_offsets(
    admin: AsyncAdmin,
    group: str,
    topic: str,
    to: End | None = None,
    time: datetime | None = None,
    offset: int | None = None,
    broker: str | None = None,
    queue_id: int | None = None,
) -> list[Move]:
    """Reset a group in a topic, or in one queue: to an end, to a time, or to an offset."""
    place = _place(to, time, offset)
    return await admin.reset_offsets(group, topic, place, broker=broker, queue_id=queue_id, offset=offset)


def _place(to: End | None, time: datetime | None, offset: int | None) -> Place:
    if sum(each is not None for each in (to, time, offset)) != 1:
        raise ConfigError("name one place", hint="to=begin, to=end, a time, or an offset of one queue")
    return round(time.timestamp() * 1_000) if time is not None else to or "begin"
