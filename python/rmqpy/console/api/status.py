"""Endpoints for the status strip: the state of the cluster in sentences, worst first, and what to do."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from rmqpy.admin.backlogs import GroupSummary
from rmqpy.admin.causes import by_cause
from rmqpy.admin.checks import CheckResult
from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.connection import MISSING
from rmqpy.admin.dead_letters import DeadLetterCount
from rmqpy.admin.group_health import dead_letter_checks, has_new_letters
from rmqpy.admin.promotion import Promoted
from rmqpy.console.endpoints import change, value
from rmqpy.console.recent import recent
from rmqpy.errors import RocketMQError
from rmqpy.findings import Finding, Step, steps

#: Further problems are only counted.
SHOWN_MAX: Final = 20
#: The number of groups that are checked: those with the largest lags, and those with the newest dead letters.
GROUPS_MAX: Final = 5


class StatusItem(NamedTuple):
    """One problem."""

    level: Literal["warn", "bad"]
    check: str
    found: str
    advice: str | None
    #: What can be done or opened, the remedy first.
    steps: list[Step]


class Status(NamedTuple):
    """The cluster in words and numbers."""

    level: Literal["ok", "warn", "bad"]
    #: Problems, the worst first.
    items: list[StatusItem]
    #: The number of further ones.
    more: int
    #: Masters that answer and accept messages; None if unknown, like the others.
    accepting: int | None
    #: Pending messages and dead letters of all groups.
    lag: int | None
    dead_letters: int | None
    #: Whether some brokers do not answer, so that there may be more of both.
    is_partial: bool


@value("/status", remembered=True)
async def status(admin: AsyncAdmin) -> Status:
    """Return the state of the cluster: problems with advice, worst first, then numbers."""
    checks = await recent(admin.health, "health")
    accepting, groups, letters = await asyncio.gather(
        _accepting(admin), _group_summaries(admin), _dead_letters(admin)
    )
    checks = [
        *checks,
        *await recent(lambda: _slow_groups(admin, groups or ()), "slow groups"),
        *dead_letter_checks(
            await recent(lambda: _not_resent(admin, letters or ()), "dead letters not resent"),
            datetime.now(UTC),
        ),
    ]
    items = [_item(each) for each in sorted(by_cause(checks), key=_severity) if each.level != "ok"]
    if accepting is None:
        # No name server answers, so no other page has anything to show.
        items = [each._replace(steps=[]) for each in items]
    levels = Counter(each.level for each in items)
    return Status(
        "bad" if levels["bad"] else "warn" if levels["warn"] else "ok",
        items[:SHOWN_MAX],
        max(0, len(items) - SHOWN_MAX),
        accepting,
        None if groups is None else sum(each.lag for each in groups),
        None if letters is None else sum(each.messages for each in letters),
        bool(MISSING.get(())),
    )


@change("POST", "/replicas/{broker}/promote")
async def promote(admin: AsyncAdmin, broker: str, broker_id: int) -> Promoted:
    """Promote a slave to master, in the role of its master."""
    return await admin.promote(broker, broker_id)


def _severity(check: CheckResult) -> tuple[bool, bool, str]:
    # A missing master before its consequences.
    return check.level != "bad", not check.check.startswith("master of "), check.check


def _item(check: CheckResult) -> StatusItem:
    advice = check.advice or ""
    found = steps(check.check, Finding(check.found, advice))
    level: Literal["warn", "bad"] = "bad" if check.level == "bad" else "warn"
    return StatusItem(level, check.check, check.found, check.advice, found)


async def _accepting(admin: AsyncAdmin) -> int | None:
    try:
        return sum(each.is_master and each.answers and not each.refuses for each in await admin.brokers())
    except RocketMQError:
        return None


async def _group_summaries(admin: AsyncAdmin) -> list[GroupSummary] | None:
    try:
        return await recent(admin.group_summaries, "groups")
    except RocketMQError:
        return None


async def _dead_letters(admin: AsyncAdmin) -> list[DeadLetterCount] | None:
    try:
        return await recent(admin.dead_letters, "dead letters")
    except RocketMQError:
        return None


async def _slow_groups(admin: AsyncAdmin, groups: Sequence[GroupSummary]) -> list[CheckResult]:
    """Check the groups with the largest lags. Red is left to servers: an abandoned group must not hide them."""
    behind = sorted((each for each in groups if each.lag), key=lambda each: -each.lag)[:GROUPS_MAX]
    found = await asyncio.gather(*(_checked(admin, each) for each in behind))
    return [each._replace(level="warn") for some in found for each in some if each.level != "ok"]


async def _not_resent(admin: AsyncAdmin, letters: Sequence[DeadLetterCount]) -> list[DeadLetterCount]:
    """Leave out groups whose newest dead letter was sent again; the newest few with new ones are asked."""
    now = datetime.now(UTC)
    new = sorted(
        (each for each in letters if has_new_letters(each.messages, each.last_ms, now)),
        key=lambda each: -each.last_ms,
    )
    asked, others = new[:GROUPS_MAX], new[GROUPS_MAX:]
    are_resent = await asyncio.gather(*(_is_resent(admin, each.group) for each in asked))
    return [*(each for each, is_resent in zip(asked, are_resent, strict=True) if not is_resent), *others]


async def _is_resent(admin: AsyncAdmin, group: str) -> bool:
    try:
        return await admin.is_newest_dead_letter_resent(group)
    except RocketMQError:
        return False


async def _checked(admin: AsyncAdmin, group: GroupSummary) -> list[CheckResult]:
    try:
        return await admin.known_group_health(group.group, is_enabled=group.is_enabled)
    except RocketMQError:
        # It was deleted a moment ago, or its broker is away, which another check reports.
        return []
