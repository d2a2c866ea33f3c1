"""Freshness of a member's view of its group: since when the group may have changed without this member having looked.

Owns that time. Members agree on shares by time alone: whoever takes a queue waits a moment, in which the one before
hears of it and commits. A member that was told of a change and has not looked yet, or whose process stood still, does
not know what it owns, and what it lost meanwhile may be in use.

For the event loop of the member; what says so, from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rmqpy.clock import running

#: The member's loop shows so often that it runs; when it has not for `PAUSED_S`, the process, or the machine, stood
#: still. Less than what any member waits before it begins with a queue that had an owner.
ALIVE_S: Final = 0.2
PAUSED_S: Final = 0.4


class Freshness:
    """How far a member may rely on its newest view."""

    def __init__(self, look: Callable[[], None]) -> None:
        """`look`: called when the group has to be looked at."""
        self._look = look
        self._alive_at = running()
        #: When the group changed first, or may have, that was not looked at yet; and what is being looked at.
        self._stale_since: float | None = None
        self._looking_since: float | None = None

    @property
    def is_fresh(self) -> bool:
        """Nothing is known to have changed since the newest view. Any thread."""
        return (
            self._stale_since is None
            and self._looking_since is None
            and running() < self._alive_at + PAUSED_S
        )

    def change(self) -> None:
        """The group has changed."""
        self._age(running())

    def tick(self) -> None:
        """The loop runs; after a pause the group may have changed since the last time it did."""
        now = running()
        # In this order: other threads look without a lock.
        if now >= self._alive_at + PAUSED_S:
            self._age(self._alive_at)
        self._alive_at = now

    @contextmanager
    def looking(self) -> Iterator[float]:
        """While the group is looked at and the view acted on: the time since which it may have changed. A look that
        fails leaves it as old as it was."""
        self.tick()
        self._looking_since, self._stale_since = self._stale_since, None
        try:
            yield running() if self._looking_since is None else self._looking_since
        except BaseException:
            if self._looking_since is not None:
                self._stale_since = self._looking_since
            raise
        finally:
            self._looking_since = None

    def _age(self, since: float) -> None:
        self._stale_since = since if self._stale_since is None else min(since, self._stale_since)
        self._look()
