"""Queue locks, for consumption in order.

Owns group → queue → holder. Invariant: a queue has at most one holder in a group, and changes hands only after the
holder released it or failed to renew for `LIFE_SECONDS`. Clients renew every 20 s, and stop trusting their lock after
30 s. The data plane knows the groups that hold locks. Threads: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from rmqpy.clock import Clock
from rmqpy.protocol.requests.queues import MessageQueue

LIFE_SECONDS: Final = 60
#: The most queues that one group may hold at this broker.
LOCKS_MAX: Final = 65_536


class _Hold(NamedTuple):
    client_id: str
    renewed: float


class QueueLocks:
    """The locks of all groups."""

    def __init__(self, clock: Clock, on_change: Callable[[str, bool], None]) -> None:
        """`on_change` gets the name of a group, and whether it got its first lock or lost its last one."""
        self._clock = clock
        self._on_change = on_change
        self._groups: dict[str, dict[MessageQueue, _Hold]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Acquire or renew queues; return those that the client holds now."""
        now = self._clock.elapsed()
        holds = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            hold = holds.get(queue)
            is_free = hold is None or hold.client_id == client_id or now - hold.renewed > LIFE_SECONDS
            if is_free and (hold is not None or len(holds) < LOCKS_MAX):
                holds[queue] = _Hold(client_id, now)
                granted.append(queue)
        if not holds:
            del self._groups[group]
        elif granted:
            self._on_change(group, True)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release the queues that this client holds."""
        holds = self._groups.get(group, {})
        for queue in queues:
            hold = holds.get(queue)
            if hold is not None and hold.client_id == client_id:
                del holds[queue]
        self._drop_empty(group)

    def expire(self) -> None:
        """Remove locks that were not renewed."""
        now = self._clock.elapsed()
        for group, holds in list(self._groups.items()):
            for queue in [queue for queue, hold in holds.items() if now - hold.renewed > LIFE_SECONDS]:
                del holds[queue]
            self._drop_empty(group)

    def _drop_empty(self, group: str) -> None:
        if group in self._groups and not self._groups[group]:
            del self._groups[group]
            self._on_change(group, False)
