"""Store events: from the store to the server log.

Threads: the event loop's; every second, after recovery, and before the store closes.
"""

from __future__ import annotations

import logging
from typing import Final

from rmqpy._native import Store

#: Seconds between two looks at the store. It keeps a thousand events meanwhile.
EVENTS_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


def log_events(store: Store) -> None:
    """Write down the events since the last call."""
    for is_warning, text in store.events():
        log.log(logging.WARNING if is_warning else logging.INFO, "%s", text)
