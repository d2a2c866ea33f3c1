"""Record of consumption: which client consumed which message, and when.

Owns, for every queue, how often each offset was consumed, by which client last, and the longest time in which none
was. A message consumed again is attributed to the last change of the group, if its new owner is not the old one and
the change was recent; anything else is left unexplained. Any thread.
"""

import threading
import time
from collections import Counter, defaultdict

#: A duplicate this long after a change of the group is explained by it: a killed member's locks live 60 s, its
#: connection is noticed at once, and Java looks at its share every 20 s.
EXPLAINED_S = 90.0


class Ledger:
    """The books of one group on one topic."""

    def __init__(self, queues: int) -> None:
        self._lock = threading.Lock()
        self._last_owner: dict[int, dict[int, str]] = {queue: {} for queue in range(queues)}
        #: When a queue was last seen to be read, from its first message on.
        self._seen_at: dict[int, float] = {}
        self._reached: dict[tuple[int, str], int] = defaultdict(lambda: -1)
        self._change = ("start", time.monotonic())
        #: Longest time without a message, by queue.
        self.gaps: dict[int, float] = dict.fromkeys(range(queues), 0.0)
        #: Messages consumed again, by the change that explains them.
        self.duplicates: Counter[str] = Counter()
        self.unexplained: list[str] = []
        #: Runs that came out of order at one member.
        self.disorder: list[str] = []

    def change(self, what: str) -> None:
        """The group is changed now."""
        with self._lock:
            self._change = (what, time.monotonic())

    def consumed(self, member: str, queue: int, first: int, last: int) -> None:
        """A member consumed offsets `first` to `last` of a queue."""
        now = time.monotonic()
        with self._lock:
            self.gaps[queue] = max(self.gaps[queue], now - self._seen_at.get(queue, now))
            self._seen_at[queue] = now
            owners = self._last_owner[queue]
            for offset in range(first, last + 1):
                before = owners.get(offset)
                if before is not None:
                    what, at = self._change
                    if before != member and now - at < EXPLAINED_S:
                        self.duplicates[what] += 1
                    else:
                        self.unexplained.append(f"queue {queue} offset {offset}: {before}, then {member}")
                owners[offset] = member
            if first <= self._reached[queue, member]:
                self.disorder.append(f"{member}, queue {queue}: {first} after {self._reached[queue, member]}")
            self._reached[queue, member] = last

    def missing(self, ends: dict[int, int]) -> int:
        """Messages before the ends of the queues that no client has consumed."""
        with self._lock:
            return sum(end - len(self._last_owner[queue]) for queue, end in ends.items())
