"""Endpoints for the status strip: the state of the cluster in sentences, worst first, and what to do."""

import asyncio
from collections import Counter
from typing import Final, Literal, NamedTuple

from rmqpy.admin.checks import REFUSES, CheckResult
from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.connection import MISSING
from rmqpy.admin.promotion import Promoted
from rmqpy.console.endpoints import change, value
from rmqpy.console.recent import recent
from rmqpy.errors import RocketMQError
from rmqpy.findings import Finding, Step, steps

#: Further problems are only counted.
SHOWN_MAX: Final = 20


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
    accepting, lag, letters = await asyncio.gather(_accepting(admin), _lag(admin), _dead_letters(admin))
    items = [_item(each) for each in sorted(checks, key=_severity) if each.level != "ok"]
    # The reason why a broker refuses messages says more than that it does.
    advice = Counter(each.advice for each in items)
    items = [each for each in items if each.found != REFUSES or advice[each.advice] == 1]
    levels = Counter(each.level for each in items)
    return Status(
        "bad" if levels["bad"] else "warn" if levels["warn"] else "ok",
        items[:SHOWN_MAX],
        max(0, len(items) - SHOWN_MAX),
        accepting,
        lag,
        letters,
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


async def _lag(admin: AsyncAdmin) -> int | None:
    try:
        return sum(each.lag for each in await recent(admin.group_summaries, "groups"))
    except RocketMQError:
        return None


async def _dead_letters(admin: AsyncAdmin) -> int | None:
    try:
        return sum(each.messages for each in await recent(admin.dead_letters, "dead letters"))
    except RocketMQError:
        return None
