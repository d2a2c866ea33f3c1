"""One page of a long table. Pure; any thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from rmqpy.config.broker import BrokerConfig
from rmqpy.errors import DecodeError
from rmqpy.protocol.declare import read_json
from rmqpy.protocol.topics import DataVersion

T = TypeVar("T")


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
    if not _is_version(version_text, version):
        first = 0
    count = max(0, min(limit, config.metadata_page))
    names = sorted(table)[max(first, 0) :][:count]
    return {name: table[name] for name in names}


def _is_version(text: str | None, version: DataVersion) -> bool:
    try:
        return read_json(DataVersion, text or "{}") == version
    except DecodeError:
        return False
