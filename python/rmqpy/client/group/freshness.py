"""Freshness of a member's view of its group: the time since which the group may have changed unseen.

Owns that time. Members agree on shares only by time: a member that takes a queue waits briefly, while the previous
owner learns of the change and commits. A member that was notified of a change and has not looked yet, or whose process
was suspended, does not know what it owns; another member may already use the queues it lost.

For the event loop of the member; methods marked so, for any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rmqpy.clock import running

#: The interval at which the member's loop shows that it runs. After `PAUSED_S` without it, the process or the machine
#: was suspended. Shorter than any member waits before it starts a queue of another owner.
ALIVE_S: Final = 0.2
PAUSED_S: Final = 0.4


class Freshness:
    """The reliability of a member's newest view."""

    def __init__(self, look: Callable[[], None]) -> None:
        """`look` is called when the group must be queried."""
        self._look = look
        self._alive_at = running()
        #: The earliest change of the group that no query covers yet, and the earliest that the current one covers.
        self._stale_since: float | None = None
        self._looking_since: float | None = None

    @property
    def is_fresh(self) -> bool:
        """True if no change since the newest view is known. Any thread."""
        return (
            self._stale_since is None
            and self._looking_since is None
            and running() < self._alive_at + PAUSED_S
        )

    def change(self) -> None:
        """Note a change of the group."""
        self._age(running())

    def tick(self) -> None:
        """Note that the loop runs. After a pause, the group may have changed since the last tick."""
        now = running()
        # The order matters: other threads read without a lock.
        if now >= self._alive_at + PAUSED_S:
            self._age(self._alive_at)
        self._alive_at = now

    @contextmanager
    def looking(self) -> Iterator[float]:
        """Cover a query of the group and the use of its result; return the time of the earliest change it covers. A
        failed query leaves the view as old as it was."""
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
