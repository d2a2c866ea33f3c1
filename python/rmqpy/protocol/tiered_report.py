"""Tiered storage of a broker in its runtime information, where every tool finds it. Pure; any thread."""

from collections.abc import Mapping
from typing import Final

#: The key, specific to rmqpy; present if there is one.
KEY: Final = "tieredStorage"
_MIB: Final = 1 << 20


def write(place: str, files: int, size: int, behind: int) -> dict[str, str]:
    """The entry of the table: what the storage has, and the bytes that it lacks."""
    return {KEY: f"{files} files, {size / _MIB:,.0f} MiB in {place}; {behind / _MIB:,.0f} MiB to copy"}


def read(table: Mapping[str, str]) -> str | None:
    """Return the entry of the table, in words; `None` without one.

    >>> read(write("s3://log/c/broker-a", 2, 2 << 30, 5 << 20))
    '2 files, 2,048 MiB in s3://log/c/broker-a; 5 MiB to copy'
    """
    return table.get(KEY)
