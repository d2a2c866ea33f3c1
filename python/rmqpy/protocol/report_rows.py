"""Rows of a report in a broker's runtime information, where every tool finds them. Pure; any thread."""

from collections.abc import Mapping, Sequence
from typing import Any

from rmqpy.protocol import fastjson


def write(key: str, rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    """The entry of the table; empty without rows."""
    return {key: fastjson.dumps(rows)} if rows else {}


def read(key: str, table: Mapping[str, str]) -> list[Any]:
    """The rows that a broker reports; empty if it reports none, or no list.

    >>> read("plugins", write("plugins", [["audit", "7 messages"]])), read("plugins", {"plugins": "7"})
    ([['audit', '7 messages']], [])
    """
    try:
        rows = fastjson.loads(table.get(key, "[]"))
    except ValueError:
        return []
    return rows if isinstance(rows, list) else []
