"""Changes in two steps: a preview returns what would change and a token, and the change needs the token.

Invariant: a change does exactly what its preview showed. A token holds the exact targets, is used once, and expires.
"""

import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field

from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.groups import Move, Place
from rmqpy.config.ends import end_of
from rmqpy.errors import ConfigError, TopicExists
from rmqpy.mcp import bounds
from rmqpy.mcp.questions import Name

#: How long a token is valid, and the most that are.
TOKEN_SECONDS: Final = 600.0
TOKENS_MAX: Final = 64
#: The most dead letters of one change.
LETTERS_MAX: Final = 100

Token = Annotated[str, Field(min_length=1, max_length=100, description="The token of the preview.")]
Kind = Literal["reset_offsets", "resend_dead_letters", "create_topic"]
_Apply = Callable[[], Awaitable[dict[str, Any]]]


class _Pending(NamedTuple):
    """A change that was previewed."""

    kind: Kind
    until: float
    apply: _Apply


class Tokens:
    """The previewed changes."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._pending: dict[str, _Pending] = {}

    def new(self, kind: Kind, apply: _Apply) -> str:
        """Return a token for a change. The oldest one is dropped if there are too many."""
        now = self._now()
        self._pending = {token: each for token, each in self._pending.items() if each.until > now}
        while len(self._pending) >= TOKENS_MAX:
            del self._pending[next(iter(self._pending))]
        token = secrets.token_urlsafe(12)
        self._pending[token] = _Pending(kind, now + TOKEN_SECONDS, apply)
        return token

    def take(self, kind: Kind, token: str) -> _Apply:
        """Return the change of a token, which cannot be used again. Raises `ConfigError`."""
        found = self._pending.get(token)
        if found is None or found.until <= self._now():
            self._pending.pop(token, None)
            raise ConfigError(
                "the token is unknown, was used, or has expired",
                hint=f"call preview_{kind} again, check what it shows, and use its token within "
                f"{TOKEN_SECONDS / 60:.0f} minutes",
            )
        if found.kind != kind:
            raise ConfigError(f"the token is for {found.kind}, not for {kind}")
        del self._pending[token]
        return found.apply


class Previews:
    """Tools that show what a change would do. Each method without an underscore is one."""

    def __init__(self, admin: Callable[[], AsyncAdmin], tokens: Tokens | None) -> None:
        """Without `tokens` changes are not allowed, and previews have no token."""
        self._admin = admin
        self._tokens = tokens

    def _with_token(self, answer: dict[str, Any], kind: Kind, apply: _Apply) -> dict[str, Any]:
        if self._tokens is None:
            return answer | {"next": "changes are off: the server was started without --allow-changes"}
        return answer | {
            "token": self._tokens.new(kind, apply),
            "next": f"show this to the user; if the user agrees, call {kind} with the token",
        }

    async def preview_reset_offsets(
        self,
        group: Name,
        topic: Name,
        to: Annotated[
            str, Field(max_length=64, description="begin, end, or a time such as 2026-01-31T12:00:00+00:00.")
        ],
    ) -> dict[str, Any]:
        """Show what a reset of a group's offsets in a topic would do: the present and the new offset of each queue, and
        how many messages would be read again or skipped."""
        moves = await self._admin().reset_offsets(group, topic, _place(to), dry_run=True)
        again = sum(max(0, move.offset - move.target) for move in moves)
        skipped = sum(max(0, move.target - move.offset) for move in moves)
        answer = {
            "group": group,
            "topic": topic,
            "summary": f"{again} messages would be read again, and {skipped} skipped.",
            "queues": bounds.rows([_move(move) for move in moves]),
        }
        return self._with_token(answer, "reset_offsets", lambda: self._reset(group, moves))

    async def _reset(self, group: str, moves: list[Move]) -> dict[str, Any]:
        admin = self._admin()
        for move in moves:
            # To the offset that the preview showed, also if the end has moved.
            await admin.reset_offsets(
                group, move.topic, "end", broker=move.broker, queue_id=move.queue_id, offset=move.target
            )
        return {
            "done": f"{len(moves)} queues were reset.",
            "queues": bounds.rows([_move(move) for move in moves]),
        }

    async def preview_resend_dead_letters(
        self,
        group: Name,
        message_ids: Annotated[
            list[Name], Field(max_length=LETTERS_MAX, description="Only these; empty: the oldest ones.")
        ],
        again: Annotated[bool, Field(description="Include those that were resent before.")] = False,
    ) -> dict[str, Any]:
        """Show which dead letters of a group would be sent to it again, at most 100. They stay in the dead-letter
        queue."""
        admin, wanted = self._admin(), set(message_ids)
        found, before, missing = [], 0, set(wanted)
        async for queue, message in admin.dlq(group):
            ids = {message.message_id, message.offset_message_id}
            if wanted and not ids & wanted:
                continue
            missing -= ids
            if not again and await admin.resent(group, queue, message):
                before += 1
                continue
            found.append((queue, message))
            if len(found) == LETTERS_MAX:
                break
        if missing and len(found) < LETTERS_MAX:
            raise ConfigError(f"group {group!r} has no dead letter {', '.join(sorted(missing))}")

        async def apply() -> dict[str, Any]:
            sent = [
                {
                    "message_id": message.message_id,
                    "sent_as": await self._admin().resend(group, queue, message),
                }
                for queue, message in found
            ]
            return {"done": f"{len(sent)} dead letters were resent to {group}.", "messages": sent}

        answer = {
            "group": group,
            "summary": f"{len(found)} dead letters would be resent; {before} were resent before and are left out.",
            "messages": bounds.rows(
                [
                    {
                        "message_id": message.message_id,
                        "keys": [bounds.cut(key) for key in message.keys[:5]],
                        "stored_at": bounds.moment(message.stored_at_ms),
                    }
                    for _, message in found
                ]
            ),
        }
        return self._with_token(answer, "resend_dead_letters", apply)

    async def preview_create_topic(
        self, topic: Name, queues: Annotated[int, Field(ge=1, le=1_024, description="On each broker.")] = 8
    ) -> dict[str, Any]:
        """Show where a new topic would be created."""
        admin = self._admin()
        if topic in await admin.topics():
            raise TopicExists(f"topic {topic!r} exists", topic=topic)
        brokers = sorted({each.broker for each in await admin.brokers() if each.is_master})

        async def apply() -> dict[str, Any]:
            made = await self._admin().create_topic(topic, read_queues=queues, write_queues=queues)
            return {"done": f"Topic {topic} was created on {', '.join(made)}."}

        answer = {
            "topic": topic,
            "summary": f"{topic} would be created with {queues} queues on each of {len(brokers)} brokers.",
            "brokers": brokers[: bounds.ROWS_MAX],
        }
        return self._with_token(answer, "create_topic", apply)


class Changes:
    """Tools that change something. Each method without an underscore is one."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def reset_offsets(self, token: Token) -> dict[str, Any]:
        """Reset the offsets of a group exactly as preview_reset_offsets showed. Messages may be handled again, or
        skipped."""
        return await self._tokens.take("reset_offsets", token)()

    async def resend_dead_letters(self, token: Token) -> dict[str, Any]:
        """Resend the dead letters that preview_resend_dead_letters showed to their group."""
        return await self._tokens.take("resend_dead_letters", token)()

    async def create_topic(self, token: Token) -> dict[str, Any]:
        """Create the topic that preview_create_topic showed."""
        return await self._tokens.take("create_topic", token)()


def _place(text: str) -> Place:
    if (end := end_of(text)) is not None:
        return end
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"to={text!r} is neither begin, end nor a time such as 2026-01-31T12:00:00+00:00"
        ) from None
    if when.tzinfo is None:
        raise ConfigError(f"to={text!r} has no time zone", hint="add one, such as +00:00 for UTC")
    return round(when.timestamp() * 1_000)


def _move(move: Move) -> dict[str, Any]:
    return {
        "broker": move.broker,
        "queue": move.queue_id,
        "offset": move.offset,
        "new_offset": move.target,
        "messages_skipped": move.target - move.offset,
    }
