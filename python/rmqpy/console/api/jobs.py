"""Endpoints for jobs: backups of brokers, and positions of archives and Spark queries."""

from typing import NamedTuple

from rmqpy.admin.backups import BackupState
from rmqpy.admin.client import AsyncAdmin
from rmqpy.console.api.groups import row_of as group_row
from rmqpy.console.api.groups import with_times
from rmqpy.console.api.history import lines
from rmqpy.console.endpoints import rows
from rmqpy.console.recent import recent


class Position(NamedTuple):
    """Committed offsets of a group without members."""

    group: str
    lag: int
    topics: int
    brokers: list[str]
    #: Age of the oldest pending message, in the queue with the largest lag; None without any.
    behind_ms: int | None = None
    #: Recent messages out per second, oldest first; None where a broker does not know them.
    recent: list[float | None] | None = None


@rows("/backups", sort="broker")
async def backups(admin: AsyncAdmin) -> list[BackupState]:
    """List the folders of `rmqpy backup` that brokers know, with their last runs."""
    return await admin.backups()


async def _completed(admin: AsyncAdmin, page: list[Position]) -> list[Position]:
    """Add message ages and lines to one page."""
    names = [row.group for row in page]
    groups = {each.group: each for each in await recent(admin.group_summaries, "groups")}
    timed = await with_times(admin, [group_row(groups[name]) for name in names if name in groups])
    ages = {row.group: row.behind_ms for row in timed}
    delivered = await lines(admin, "out", names)
    return [row._replace(behind_ms=ages.get(row.group), recent=delivered.get(row.group)) for row in page]


@rows("/positions", sort="-lag", complete=_completed)
async def positions(admin: AsyncAdmin) -> list[Position]:
    """List groups that have committed offsets and no members: Spark queries, archives, and stopped consumers."""
    members = {each.group for each in await recent(admin.clients, "clients") if each.role == "consumer"}
    return [
        Position(each.group, each.lag, each.topics, each.brokers)
        for each in await recent(admin.group_summaries, "groups")
        if each.topics and each.group not in members
    ]
