"""Store events, written to the server log.

Threads: the event loop's; every second, after recovery, and before the store closes.
"""

from __future__ import annotations

import logging
from typing import Final

from rmqpy._native import Store

#: The interval of `log_events`. The store buffers a thousand events meanwhile.
EVENTS_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


def log_events(store: Store) -> None:
    """Log the store's events since the last call."""
    for is_warning, text in store.events():
        log.log(logging.WARNING if is_warning else logging.INFO, "%s", text)
