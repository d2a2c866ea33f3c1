"""Pagination of a long table, and the wait for changes. Threads: any; the wait is the event loop's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from rmqpy.config.broker import BrokerConfig
from rmqpy.control.tables.named import NamedTable
from rmqpy.errors import DecodeError
from rmqpy.protocol.declare import read_json
from rmqpy.protocol.topics import DataVersion

T = TypeVar("T")

#: The longest time that a reply is held, whatever the reader requests.
WAIT_SECONDS_MAX: Final = 60.0


def page_of(
    table: Mapping[str, T],
    first: int | None,
    limit: int | None,
    version_text: str | None,
    version: DataVersion,
    config: BrokerConfig,
) -> dict[str, T]:
    """Return the entries from `first` on, ordered by name, or all entries if no page is requested.

    A reader whose earlier pages have another version starts again, because they are stale.
    """
    if not config.pages_metadata or first is None or limit is None:
        return dict(table)
    if not is_version(version_text, version):
        first = 0
    count = max(0, min(limit, config.metadata_page))
    names = sorted(table)[max(first, 0) :][:count]
    return {name: table[name] for name in names}


async def wait_for_change(
    table: NamedTable[Any, Any], reader: int, replica: int | None, known: str | None, millis: int | None
) -> None:
    """Hold the reply to a connection until the version differs from the reader's, if it requests that. Apache's slaves
    never do. `replica` is the reader's id from a controller."""
    if millis is None or (version := _version(known)) is None:
        return
    table.has(reader, replica, version)
    if version == table.version:
        await table.changed(table.version, min(max(millis / 1_000, 0.0), WAIT_SECONDS_MAX))


def is_version(text: str | None, version: DataVersion) -> bool:
    """Return whether this JSON text is that version."""
    return _version(text) == version


def _version(text: str | None) -> DataVersion | None:
    try:
        return read_json(DataVersion, text or "{}")
    except DecodeError:
        return None
