"""Versions of tables: how others see that something changed. Pure; any thread."""

from __future__ import annotations

from rmqpy.clock import Clock
from rmqpy.protocol.topics import DataVersion


def first_version(clock: Clock) -> DataVersion:
    """The version of a table that was never changed."""
    return DataVersion(timestamp=clock.wall_ms())


def next_version(version: DataVersion, clock: Clock) -> DataVersion:
    """The version after one more change. Name servers ignore a table whose version did not move."""
    return DataVersion(
        counter=version.counter + 1, state_version=version.state_version, timestamp=clock.wall_ms()
    )
