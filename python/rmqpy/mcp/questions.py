"""Questions: the tools that change nothing. Their docstrings are what an assistant reads about them."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field

from rmqpy.admin.checks import CheckResult
from rmqpy.admin.client import AsyncAdmin
from rmqpy.mcp import bounds

T = TypeVar("T")

#: The most characters of a name, as brokers accept it.
_NAME_CHARS_MAX: Final = 255

Name = Annotated[str, Field(min_length=1, max_length=_NAME_CHARS_MAX)]
Contains = Annotated[str, Field(max_length=_NAME_CHARS_MAX, description="Only names with this text.")]
Count = Annotated[int, Field(ge=1, le=bounds.MESSAGES_MAX)]
BodyChars = Annotated[
    int, Field(ge=0, le=bounds.BODY_CHARS_MAX, description="The most characters of a body to show.")
]

#: The most queues of a group whose progress an answer lists.
_QUEUES_MAX: Final = 50
_BODY_CHARS: Final = 1_000


class Questions:
    """Tools that read. Each method without an underscore is one."""

    def __init__(self, admin: Callable[[], AsyncAdmin], *, shows_bodies: bool) -> None:
        self._admin = admin
        self._shows_bodies = shows_bodies

    def _body_chars(self, wanted: int) -> int | None:
        return wanted if self._shows_bodies else None

    async def cluster_state(self) -> dict[str, Any]:
        """Check the cluster: problems of name servers and brokers with advice, the worst first, then the brokers with
        their rates and disks. Begin with this tool when something is wrong."""
        admin = self._admin()
        checks = await admin.health()
        brokers = await admin.brokers(with_gone=True)
        return {
            "summary": _summary(checks),
            "problems": bounds.rows([_check(each) for each in _worst_first(checks)]),
            "sound": bounds.rows([_check(each) for each in checks if each.level == "ok"]),
            "brokers": bounds.rows(
                [
                    {
                        "cluster": each.cluster,
                        "broker": each.broker,
                        "role": "master" if each.is_master else f"slave {each.broker_id}",
                        "address": each.address,
                        "messages_in_per_second": each.in_per_second,
                        "messages_out_per_second": each.out_per_second,
                        "disk_used_percent": None
                        if each.disk_used is None
                        else round(100 * each.disk_used, 1),
                        "refuses_messages": each.refuses,
                        "fault": each.fault,
                    }
                    for each in brokers
                ]
            ),
        }

    async def list_topics(self, contains: Contains = "") -> dict[str, Any]:
        """List topics with their type, queues and permission, by name; without those of the system."""
        found = await self._admin().topic_summaries()
        wanted = set(bounds.matching((each.name for each in found), contains))
        return bounds.rows([each._asdict() for each in found if each.name in wanted])

    async def list_groups(self, contains: Contains = "") -> dict[str, Any]:
        """List consumer groups with their lag, the number of pending messages, the largest first."""
        found = await self._admin().group_summaries()
        wanted = set(bounds.matching((each.group for each in found), contains))
        rows = [each._asdict() for each in found if each.group in wanted]
        return bounds.rows(sorted(rows, key=lambda row: (-row["lag"], row["group"])))

    async def why_is_group_behind(self, group: Name) -> dict[str, Any]:
        """Explain the lag of a consumer group: likely reasons with advice, its members, and the queues with the most
        pending messages."""
        admin = self._admin()
        checks = await admin.group_health(group)
        progress, members = await admin.progress(group), await admin.members(group)
        queues = [
            {
                "topic": each.topic,
                "broker": each.broker,
                "queue": each.queue_id,
                "offset": each.offset,
                "end": each.end,
                "lag": each.lag,
                "oldest_pending_seconds": each.behind_ms / 1_000,
                "in_flight": each.in_flight,
            }
            for each in sorted(progress, key=lambda each: -each.lag)
        ]
        return {
            "summary": _summary(checks),
            "reasons": [_check(each) for each in checks],
            "lag": sum(each.lag for each in progress),
            "members": bounds.rows(
                [
                    {
                        "client_id": bounds.cut(each.client_id),
                        "address": each.address,
                        "language": each.language,
                        "subscriptions": None
                        if each.subscriptions is None
                        else {
                            topic: bounds.cut(text)
                            for topic, text in list(each.subscriptions.items())[: bounds.PROPERTIES_MAX]
                        },
                    }
                    for each in members
                ],
                _QUEUES_MAX,
            ),
            "queues": bounds.rows(queues, _QUEUES_MAX),
        }

    async def show_message(
        self,
        message_id: Name,
        topic: Annotated[str, Field(max_length=_NAME_CHARS_MAX)] = "",
        body_chars: BodyChars = _BODY_CHARS,
    ) -> dict[str, Any]:
        """Show one message: by `offset_message_id`, the broker's id, or by `message_id`, the producer's id, which needs
        its topic."""
        found = await self._admin().message(message_id, topic or None)
        return bounds.message(found, body_chars=self._body_chars(body_chars))

    async def messages_by_key(
        self, topic: Name, key: Name, count: Count = 10, body_chars: BodyChars = _BODY_CHARS
    ) -> dict[str, Any]:
        """Show the newest messages of a topic with a key, such as the number of an order."""
        found = await self._admin().messages_by_key(topic, key, count=count)
        return self._messages(found[:count], body_chars)

    async def newest_messages(
        self, topic: Name, count: Count = 5, body_chars: BodyChars = _BODY_CHARS
    ) -> dict[str, Any]:
        """Show the newest messages of a topic, oldest first."""
        return self._messages(await _taken(self._admin().tail(topic, count), count), body_chars)

    async def dead_letters(
        self,
        group: Annotated[str, Field(max_length=_NAME_CHARS_MAX)] = "",
        count: Count = 5,
        body_chars: BodyChars = _BODY_CHARS,
    ) -> dict[str, Any]:
        """Without a group, list the groups with dead letters: messages that exhausted their retries. With a group, show
        its oldest ones."""
        admin = self._admin()
        if not group:
            counts = await admin.dead_letters()
            rows = [
                {"group": each.group, "messages": each.messages, "newest": bounds.moment(each.last_ms)}
                for each in counts
            ]
            return bounds.rows(sorted(rows, key=lambda row: -int(str(row["messages"]))))
        letters = await _taken(admin.dlq(group), count)
        return self._messages([message for _, message in letters], body_chars)

    def _messages(self, found: Sequence[Any], body_chars: int) -> dict[str, Any]:
        return bounds.rows([bounds.message(each, body_chars=self._body_chars(body_chars)) for each in found])


async def _taken(found: AsyncIterator[T], count: int) -> list[T]:
    taken: list[T] = []
    async for each in found:
        taken.append(each)
        if len(taken) == count:
            break
    return taken


def _check(each: CheckResult) -> dict[str, Any]:
    return {key: bounds.cut(value, 1_000) for key, value in each._asdict().items() if value is not None}


def _worst_first(checks: Sequence[CheckResult]) -> list[CheckResult]:
    return sorted((each for each in checks if each.level != "ok"), key=lambda each: each.level != "bad")


def _summary(checks: Sequence[CheckResult]) -> str:
    """The result in a sentence."""
    bad = sum(each.level == "bad" for each in checks)
    warnings = sum(each.level == "warn" for each in checks)
    if not bad + warnings:
        return f"All {len(checks)} checks passed."
    first = _worst_first(checks)[0]
    return bounds.cut(
        f"{bad} of {len(checks)} checks found a failure, {warnings} a warning. First: {first.check}: {first.found}.",
        1_000,
    )
