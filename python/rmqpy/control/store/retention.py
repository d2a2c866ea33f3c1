"""Retention: from the settings down to the store.

The store counts hours in UTC and has no calendar, so it is told what the local time is ahead. That changes twice a
year: the rule goes down again every few minutes, and with every change of a setting. Threads: the event loop's.
"""

from __future__ import annotations

import time
from typing import Final

from rmqpy._native import Store
from rmqpy.clock import Clock
from rmqpy.config.store import StoreConfig

#: Seconds between two rules; as late a change of the clocks may be noticed.
RETENTION_SECONDS: Final = 300.0


def retain(store: Store, config: StoreConfig, clock: Clock) -> None:
    """Set the rule that these settings ask for."""
    store.retain(config, time.localtime(clock.wall_ms() / 1_000).tm_gmtoff * 1_000)
