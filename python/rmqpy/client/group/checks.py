"""Checks of consumer arguments that a broker would accept silently and answer with no messages.

Pure, callable from any thread.
"""

import re
from datetime import datetime
from typing import Final

from rmqpy.client.group.offsets import StartFrom
from rmqpy.config.ends import end_of
from rmqpy.errors import ConfigError
from rmqpy.message import Filter
from rmqpy.protocol import names

#: Tag expressions contain no quotes, no comparisons between words, and no SQL keywords between other words.
_SQL: Final = re.compile(
    r"=\s*'|[^\s<>=!]\s*(?:<>|<=|>=|<|>)\s*[^\s<>=!]|\s=\s"
    r"|\s(?:and|or|in|like|between|is(?:\s+not)?\s+null)(?:\s|\(|$)|^\s*not\s",
    re.IGNORECASE,
)


def check_filter(wanted: Filter) -> Filter:
    """Return the filter. Raises `ConfigError` for SQL given as tags, which would match no tag."""
    if isinstance(wanted, str) and _SQL.search(wanted):
        raise ConfigError(
            f"{wanted!r} is SQL, not tags such as 'paid || refunded'",
            hint=f"give it as rmqpy.sql({wanted!r})",
        )
    return wanted


def check_group(group: str) -> None:
    """Raise `ConfigError` for an invalid group name, such as an address."""
    if fault := names.group_fault(group):
        hint = "the group comes first, name servers behind it" if ":" in group else None
        raise ConfigError(f"group {group!r}: {fault}", hint=hint)


def check_start(start_from: object) -> StartFrom:
    """Return the start as `begin`, `end` or a time. Raises `ConfigError` for any other value."""
    if isinstance(start_from, datetime):
        return start_from
    match end_of(start_from):
        case "begin":
            return "earliest"
        case "end":
            return "latest"
    raise ConfigError(f"start_from={start_from!r} is neither 'earliest', 'latest' nor a datetime")
