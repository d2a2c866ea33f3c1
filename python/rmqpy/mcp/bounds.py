"""Bounds of answers: rows are counted before they are cut, and messages are shown with a part of their body. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rmqpy.errors import DecodeError
from rmqpy.message import ReceivedMessage

#: The most rows of an answer, and messages of one.
ROWS_MAX: Final = 200
MESSAGES_MAX: Final = 20
#: The most characters of a body, and of the other texts of a message.
BODY_CHARS_MAX: Final = 10_000
TEXT_CHARS_MAX: Final = 500
PROPERTIES_MAX: Final = 50


def cut(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Return the text, or its beginning with the number of characters left out.

    >>> cut("four", 4), cut("a longer text", 4)
    ('four', 'a lo… (9 more characters)')
    """
    left = len(text) - chars_max
    return text if left <= 0 else f"{text[:chars_max]}… ({left} more characters)"


def rows(found: Sequence[Mapping[str, Any]], rows_max: int = ROWS_MAX) -> dict[str, Any]:
    """Return the first rows with their number, and the number of all.

    >>> rows([{"name": "a"}, {"name": "b"}], 1)
    {'total': 2, 'shown': 1, 'rows': [{'name': 'a'}]}
    """
    shown = list(found[:rows_max])
    return {"total": len(found), "shown": len(shown), "rows": shown}


def matching(names: Iterable[str], contains: str) -> list[str]:
    """Return the names that contain a text, whatever its case."""
    return [name for name in names if contains.lower() in name.lower()]


def moment(milliseconds: int) -> str | None:
    """Return a time in ms since the epoch as text in UTC; `None` for 0.

    >>> moment(1_700_000_000_000), moment(0)
    ('2023-11-14T22:13:20+00:00', None)
    """
    if milliseconds <= 0:
        return None
    try:
        return datetime.fromtimestamp(milliseconds // 1_000, UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return f"{milliseconds} ms since 1970"


def message(found: ReceivedMessage, *, body_chars: int | None) -> dict[str, Any]:
    """Return a message; without `body_chars` without its body."""
    properties = {
        cut(name, 100): cut(value) for name, value in list(found.properties.items())[:PROPERTIES_MAX]
    }
    row: dict[str, Any] = {
        "topic": found.topic,
        "broker": found.queue.broker,
        "queue": found.queue.queue_id,
        "offset": found.queue_offset,
        "message_id": found.message_id,
        "offset_message_id": found.offset_message_id,
        "tag": None if found.tag is None else cut(found.tag),
        "keys": [cut(key) for key in found.keys[:PROPERTIES_MAX]],
        "properties": properties,
        "born_at": moment(found.born_at_ms),
        "born_host": found.born_host,
        "stored_at": moment(found.stored_at_ms),
        "delivery_attempt": found.delivery_attempt,
    }
    if body_chars is None:
        return row | {"body": "not shown: the server was started with --no-bodies"}
    try:
        body = found.body
    except DecodeError as error:
        return row | {"body_error": cut(str(error))}
    row["body_bytes"] = len(body)
    try:
        row["body"] = cut(body.decode(), body_chars)
    except UnicodeDecodeError:
        row["body_base64"] = cut(base64.b64encode(body[:body_chars]).decode("ascii"), body_chars)
    return row
