"""Minimum of copies: the number of replicas in sync below which a master refuses messages, unless it is configured.

It follows from the number of registered replicas: a set of three or more still has a majority with two in sync, while a
pair with that minimum would refuse messages once either broker is lost. Threads: the event loop's.
"""

from __future__ import annotations

from typing import Final

from rmqpy.control.election.running_broker import RunningBroker

#: The number of registered replicas from which on two must be in sync.
MAJORITY_FROM: Final = 3


class CopiesMin:
    """The minimum of one broker."""

    def __init__(self, *, is_automatic: bool) -> None:
        self._is_automatic = is_automatic
        self._registered = 1

    def registered(self, count: int) -> None:
        """Take the number of registered replicas, as a controller reports it."""
        self._registered = count

    def in_sync(self, count: int) -> None:
        """Take the number of replicas in sync, all of which are registered. Some may have registered since the last
        report."""
        self._registered = max(self._registered, count)

    def apply(self, running: RunningBroker | None) -> None:
        """Set the minimum of these parts."""
        if running is not None and self._is_automatic:
            running.metadata.set_copies_min(2 if self._registered >= MAJORITY_FROM else 1)
