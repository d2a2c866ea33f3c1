"""Health checks of a consumer group: its lag, with possible reasons."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from rmqpy import findings
from rmqpy.admin.checks import CheckResult
from rmqpy.admin.connection import Part
from rmqpy.admin.dead_letters import DeadLetterCount
from rmqpy.admin.groups import Groups, Member, Progress, disagreements
from rmqpy.findings import Finding

#: A backlog whose oldest message is younger is traffic, not a delay.
BEHIND_S_MIN: Final = 60.0
#: Dead letters older than this are only counted: those that were sent again stay in their topic.
NEW_LETTERS_S: Final = 3_600.0
#: The share of a backlog in one queue, and the least backlog, that make the queue hot.
_HOT_SHARE: Final = 0.9
_HOT_LAG: Final = 100


class GroupHealth(Part):
    """Checks of one group."""

    async def of(self, group: str) -> list[CheckResult]:
        """Check whether the group progresses, and name possible reasons if not, the most likely first."""
        settings = await Groups(self._cluster).describe(group)
        return await self.of_known(group, is_enabled=all(each.consume_enable for each in settings.values()))

    async def of_known(self, group: str, *, is_enabled: bool) -> list[CheckResult]:
        """`of` a group known to exist, whose members may consume or not."""
        groups = Groups(self._cluster)
        progress, members = await groups.known_progress(group), await groups.known_members(group)
        return group_checks(group, progress, members, is_enabled=is_enabled)


def group_checks(
    group: str, progress: Sequence[Progress], members: Sequence[Member], *, is_enabled: bool
) -> list[CheckResult]:
    """The same from facts."""
    check = f"group {group}"
    lag = sum(each.lag for each in progress)
    found: list[CheckResult] = []
    if not is_enabled:
        found.append(CheckResult(check, "bad", *findings.consumption_disabled(group)))
    if lag and not members:
        found.append(CheckResult(check, "bad", *findings.no_consumer(group, lag)))
    if len(disagreements(list(members))) > 1:
        found.append(CheckResult(check, "bad", *findings.subscriptions_differ()))
    if lag and members and is_enabled:
        found += [CheckResult(check, "warn", *each) for each in _slow(progress, lag, len(members))]
    if not found:
        online = f"{len(members)} member{'s' * (len(members) != 1)} online"
        found.append(CheckResult(check, "ok", f"{lag} messages pending, {online}"))
    return found


def dead_letter_checks(counts: Iterable[DeadLetterCount], now: datetime) -> Iterator[CheckResult]:
    """Yield a warning for each group with new dead letters. Pure."""
    for group, messages, last_ms in counts:
        last = datetime.fromtimestamp(last_ms / 1_000, UTC)
        if has_new_letters(messages, last_ms, now):
            yield CheckResult(f"dead letters of {group}", "warn", *findings.given_up(group, messages, last))


def has_new_letters(messages: int, last_ms: int, now: datetime) -> bool:
    """Whether dead letters, the newest stored at `last_ms`, are a warning. Pure."""
    return bool(messages) and now.timestamp() - last_ms / 1_000 < NEW_LETTERS_S


def _slow(progress: Sequence[Progress], lag: int, members: int) -> Iterator[Finding]:
    behind = [each for each in progress if each.behind_ms >= BEHIND_S_MIN * 1_000]
    oldest_s = max((each.behind_ms for each in behind), default=0) / 1_000
    if len(behind) == 1 and len(progress) > 1:
        one = behind[0]
        yield findings.waiting_queue(f"{one.broker}:{one.queue_id}", one.offset, oldest_s)
        return
    if not behind:
        return
    largest = max(progress, key=lambda each: each.lag)
    if len(progress) > 1 and lag >= _HOT_LAG and largest.lag >= _HOT_SHARE * lag:
        yield findings.hot_queue(f"{largest.broker}:{largest.queue_id}", largest.lag / lag)
        return
    yield findings.slow_members(lag, members, oldest_s)
