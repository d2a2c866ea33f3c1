"""Versions of tables: how others see that something changed. Pure; any thread."""

from __future__ import annotations

import time

from rmqpy.protocol.topics import DataVersion


def now_ms() -> int:
    """Wall clock in ms, the time of everything that is written to files or told to others."""
    return time.time_ns() // 1_000_000


def next_version(version: DataVersion) -> DataVersion:
    """The version after one more change. Name servers ignore a table whose version did not move."""
    return DataVersion(counter=version.counter + 1, state_version=version.state_version, timestamp=now_ms())
