"""Endpoints for groups: list with lag, details, preview and reset of offsets."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from rmqpy.admin.backlogs import GroupSummary
from rmqpy.admin.checks import CheckResult
from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.connection import Missing, note_missing
from rmqpy.admin.group_health import group_checks
from rmqpy.admin.groups import Member, Move, Place, Progress, disagreements
from rmqpy.config.ends import End
from rmqpy.console.api.history import lines
from rmqpy.console.endpoints import change, rows, value
from rmqpy.console.recent import recent
from rmqpy.errors import ConfigError, RocketMQError
from rmqpy.protocol.requests.groups import SubscriptionGroup


class Disagreement(NamedTuple):
    """Members with equal subscriptions; more than one of these means that the group is misconfigured."""

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
    #: Age of the oldest pending message, in the queue with the largest lag; None without any.
    behind_ms: int | None = None
    #: Recent pending messages, oldest first; None where a broker does not know them.
    recent: list[float | None] | None = None


class GroupDetail(NamedTuple):
    """One group."""

    settings: Mapping[str, SubscriptionGroup]
    progress: list[Progress]
    members: list[Member]
    #: Empty while all subscriptions are equal.
    disagreements: list[Disagreement]
    #: Whether the group progresses, and possible reasons if not.
    checks: list[CheckResult]
    #: Unreachable brokers, whose data is missing.
    missing: list[Missing]


class Stack(NamedTuple):
    """Thread stacks of a member."""

    text: str


#: The number of groups of a page that are queried concurrently.
_AT_ONCE: Final = 8


async def with_times(admin: AsyncAdmin, page: list[GroupRow], system: bool = False) -> list[GroupRow]:
    """Add message ages, which brokers of Apache report for each group and topic separately, to one page."""
    ages = await admin.group_ages([row.group for row in page if row.lag])
    if ages is not None:
        return [row._replace(behind_ms=ages[row.group]) if row.lag else row for row in page]
    turns = asyncio.Semaphore(_AT_ONCE)

    async def timed(row: GroupRow) -> GroupRow:
        if not row.lag:
            return row
        async with turns:
            try:
                # It was in the list a moment ago: a lookup would query every group.
                progress = await admin.known_progress(row.group)
            except RocketMQError:
                # The group or a broker has gone since: its own page reports it.
                return row
        return row._replace(behind_ms=max((each.behind_ms for each in progress), default=0))

    return list(await asyncio.gather(*map(timed, page)))


async def _completed(admin: AsyncAdmin, page: list[GroupRow], system: bool = False) -> list[GroupRow]:
    """Add message ages and lines to one page."""
    timed, lags = await asyncio.gather(
        with_times(admin, page), lines(admin, "lag", [row.group for row in page])
    )
    return [row._replace(recent=lags.get(row.group)) for row in timed]


@rows("/groups", sort="-lag", complete=_completed)
async def groups(admin: AsyncAdmin, system: bool = False) -> list[GroupRow]:
    """List every group with its lag; system groups only on request."""
    found = await (
        admin.group_summaries(with_system=True) if system else recent(admin.group_summaries, "groups")
    )
    return [row_of(each) for each in found]


def row_of(group: GroupSummary) -> GroupRow:
    return GroupRow(*group)


@value("/groups/{group}")
async def group(admin: AsyncAdmin, group: str) -> GroupDetail:
    """Return one group: lag of each queue in messages and time, members, and differing subscriptions."""
    missing = note_missing()
    settings, progress, members = await asyncio.gather(
        admin.group(group), admin.progress(group), admin.members(group)
    )
    found = disagreements(members)
    is_enabled = all(each.consume_enable for each in settings.values())
    checks = group_checks(group, progress, members, is_enabled=is_enabled)
    return GroupDetail(
        settings,
        progress,
        members,
        [Disagreement(*each) for each in found] if len(found) > 1 else [],
        # Without the data of a broker it is not known whether all is well.
        [each for each in checks if each.level != "ok" or not missing],
        list(dict.fromkeys(missing)),
    )


@value("/groups/{group}/stack")
async def group_stack(admin: AsyncAdmin, group: str, client_id: str) -> Stack:
    """Return the thread stacks of one member, in the format of its language."""
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
    """Preview a reset of the group, queue by queue, without moving it."""
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
    """Reset a group in a topic or in one queue: to an end, to a time, or to an offset."""
    place = _place(to, time, offset)
    return await admin.reset_offsets(group, topic, place, broker=broker, queue_id=queue_id, offset=offset)


def _place(to: End | None, time: datetime | None, offset: int | None) -> Place:
    if sum(each is not None for each in (to, time, offset)) != 1:
        raise ConfigError("give one position", hint="to=begin, to=end, a time, or an offset of one queue")
    return round(time.timestamp() * 1_000) if time is not None else to or "begin"
