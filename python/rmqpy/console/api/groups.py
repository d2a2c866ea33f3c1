"""Groups: their list with lag, one with queues, members and what they disagree about; offsets previewed and reset."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from rmqpy.admin.backlogs import GroupSummary
from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.groups import Member, Move, Place, Progress, disagreements
from rmqpy.console.endpoints import change, rows, value
from rmqpy.errors import ConfigError
from rmqpy.protocol.requests.groups import SubscriptionGroup


class Disagreement(NamedTuple):
    """Members that subscribe to the same; more than one of these means that the group is set up wrong."""

    client_ids: list[str]
    subscriptions: Mapping[str, str]


class GroupDetail(NamedTuple):
    """One group."""

    settings: Mapping[str, SubscriptionGroup]
    progress: list[Progress]
    members: list[Member]
    #: Empty while all members subscribe to the same.
    disagreements: list[Disagreement]


class Stack(NamedTuple):
    """What the threads of a member do."""

    text: str


End = Literal["begin", "end"]


@rows("/groups", sort="-lag")
async def groups(admin: AsyncAdmin, system: bool = False) -> list[GroupSummary]:
    """Every group with its lag; groups of the system only if asked for."""
    return await admin.group_summaries(with_system=system)


@value("/groups/{group}")
async def group(admin: AsyncAdmin, group: str) -> GroupDetail:
    """One group: lag of each queue in messages and in time, members, and whether they subscribe to the same."""
    members = await admin.members(group)
    found = disagreements(members)
    return GroupDetail(
        await admin.group(group),
        await admin.progress(group),
        members,
        [Disagreement(*each) for each in found] if len(found) > 1 else [],
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
