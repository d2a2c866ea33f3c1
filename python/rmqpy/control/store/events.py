"""From what happened in the store to the log. Threads: the event loop's; every second, and once after recovery."""

from __future__ import annotations

import logging
from typing import Final, Protocol

#: How often the store is asked. It keeps a thousand events meanwhile.
EVENTS_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


class EventfulStore(Protocol):
    """What keeps events until they are taken."""

    def events(self) -> list[tuple[bool, str]]: ...


def log_events(store: EventfulStore) -> None:
    """Write down what has happened since the last call."""
    for is_warning, text in store.events():
        log.log(logging.WARNING if is_warning else logging.INFO, "%s", text)
