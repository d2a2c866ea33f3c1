"""One page of a long table, and the wait for another one. Threads: any; the wait is the event loop's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from rmqpy.config.broker import BrokerConfig
from rmqpy.control.tables.named import NamedTable
from rmqpy.errors import DecodeError
from rmqpy.protocol.declare import read_json
from rmqpy.protocol.topics import DataVersion

T = TypeVar("T")

#: How long an answer waits at most, whatever its reader asks for.
WAIT_SECONDS_MAX: Final = 60.0


def page_of(
    table: Mapping[str, T],
    first: int | None,
    limit: int | None,
    version_text: str | None,
    version: DataVersion,
    config: BrokerConfig,
) -> dict[str, T]:
    """The entries from `first` on, in the order of names, or all when no page is asked for.

    A reader that began with another version of the table starts again: its earlier pages are stale.
    """
    if not config.pages_metadata or first is None or limit is None:
        return dict(table)
    if not is_version(version_text, version):
        first = 0
    count = max(0, min(limit, config.metadata_page))
    names = sorted(table)[max(first, 0) :][:count]
    return {name: table[name] for name in names}


async def wait_for_change(
    table: NamedTable[Any, Any], reader: int, known: str | None, millis: int | None
) -> None:
    """Wait for another version of a table than the one at its reader, a connection, where that asks for it. Apache's
    slaves never do."""
    if millis is None or (version := _version(known)) is None:
        return
    is_newest = version == table.version
    table.readers.has(reader, version, is_newest=is_newest)
    if is_newest:
        await table.changed(table.version, min(max(millis / 1_000, 0.0), WAIT_SECONDS_MAX))


def is_version(text: str | None, version: DataVersion) -> bool:
    """Whether this text, JSON as it came, is that version."""
    return _version(text) == version


def _version(text: str | None) -> DataVersion | None:
    try:
        return read_json(DataVersion, text or "{}")
    except DecodeError:
        return None
