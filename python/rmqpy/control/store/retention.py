"""Retention: passes the retention settings to the store.

The store counts hours in UTC without a calendar, so it needs the offset of the local time, which changes twice a year.
The rule is passed every few minutes, and with every change of a setting. Threads: the event loop's.
"""

from __future__ import annotations

import time
from typing import Final

from rmqpy._native import Store
from rmqpy.clock import Clock
from rmqpy.config.store import StoreConfig

#: The interval, and therefore the longest delay after a change of the local time.
RETENTION_SECONDS: Final = 300.0


def retain(store: Store, config: StoreConfig, clock: Clock) -> None:
    """Pass the retention rule of these settings to the store."""
    store.retain(config, time.localtime(clock.wall_ms() / 1_000).tm_gmtoff * 1_000)
