"""Record of consumption: the consumer and the time of each message.

Owns, for every queue, how often each offset was consumed, by which client last, and the longest time without
consumption. A duplicate is attributed to the last change of the group, if the change was recent and the new owner is
not the old one, or was paused, or was notified of the loss of the queue; any other is unexplained. Any thread.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

#: A duplicate this long after a change of the group is explained by it: a killed member's locks live 60 s, the loss
#: of its connection is noticed immediately, and Java checks its share every 20 s.
EXPLAINED_S = 90.0
#: For so long after a pause, a client may consume again messages that others consumed meanwhile.
RESUMED_S = 15.0

#: Broker and queue id.
Queue: TypeAlias = tuple[str, int]


class Lull(NamedTuple):
    """A time in which no client consumed from a queue."""

    seconds: float
    queue: Queue
    #: The consumers before and after it.
    before: str
    after: str
    #: Changes during it and up to half a minute before, each with the seconds from then to the end of the lull.
    changes: list[tuple[float, str]]

    def __str__(self) -> str:
        changes = ", ".join(f"{what} {ago:.1f} s" for ago, what in self.changes)
        return f"{self.seconds:.1f} s, queue {self.queue}, {self.before}, then {self.after}; before its end: {changes}"


class Ledger:
    """The record of one group on one topic."""

    def __init__(self, queues: Collection[Queue]) -> None:
        self._lock = threading.Lock()
        self._last_owner: dict[Queue, dict[int, str]] = {queue: {} for queue in queues}
        #: The time when each queue was last read.
        self._seen_at: dict[Queue, float] = {}
        #: The time when each client last consumed from a queue.
        self._active: dict[Queue, dict[str, float]] = {queue: {} for queue in queues}
        self._reached: dict[tuple[Queue, str], int] = defaultdict(lambda: -1)
        self._change = ("start", time.monotonic())
        self._changes = [self._change]
        self._resumed_at: dict[str, float] = {}
        self._lost: dict[tuple[Queue, str], float] = {}
        #: The longest of each queue.
        self.lulls: dict[Queue, Lull] = {queue: Lull(0.0, queue, "", "", []) for queue in queues}
        #: Messages consumed again, by the change that explains them.
        self.duplicates: Counter[str] = Counter()
        self.unexplained: list[str] = []
        #: Runs that came out of order at one member.
        self.disorder: list[str] = []

    def change(self, what: str, who: str) -> None:
        """Record a change of the group."""
        now = time.monotonic()
        with self._lock:
            self._change = (what, now)
            self._changes.append((f"{who} {what}", now))

    def note(self, what: str) -> None:
        """Record an event that explains no duplicate."""
        with self._lock:
            self._changes.append((what, time.monotonic()))

    def resume(self, *members: str) -> None:
        """Record the end of a pause of members or a broker, which excuses the lull and their duplicates."""
        now = time.monotonic()
        with self._lock:
            self._resumed_at.update(dict.fromkeys(members, now))
            self._seen_at.update(dict.fromkeys(self._seen_at, now))

    def wait(self, *queues: Queue) -> None:
        """Record that these queues wait for a paused member."""
        now = time.monotonic()
        with self._lock:
            self._seen_at.update({queue: now for queue in queues if queue in self._seen_at})

    def lost(self, member: str, queue: Queue) -> None:
        """Record that a member lost a queue: it may receive uncommitted messages again."""
        with self._lock:
            self._lost[queue, member] = time.monotonic()
            self._reached.pop((queue, member), None)

    def recent(self, queue: Queue, seconds: float) -> set[str]:
        """Return the clients that consumed from a queue within the last seconds."""
        now = time.monotonic()
        with self._lock:
            return {member for member, at in self._active[queue].items() if now - at < seconds}

    def consumed(self, member: str, queue: Queue, first: int, last: int) -> None:
        """Record that a member consumed offsets `first` to `last` of a queue."""
        now = time.monotonic()
        with self._lock:
            is_resumed = now - self._resumed_at.get(member, 0.0) < RESUMED_S
            is_again = is_resumed or now - self._lost.get((queue, member), 0.0) < EXPLAINED_S
            if (seconds := now - self._seen_at.get(queue, now)) > self.lulls[queue].seconds:
                self.lulls[queue] = self._lull(queue, seconds, member, now)
            self._seen_at[queue] = self._active[queue][member] = now
            owners = self._last_owner[queue]
            for offset in range(first, last + 1):
                before = owners.get(offset)
                if before is not None:
                    what, at = self._change
                    if (before != member or is_again) and now - at < EXPLAINED_S:
                        self.duplicates[what] += 1
                    else:
                        self.unexplained.append(f"queue {queue} offset {offset}: {before}, then {member}")
                owners[offset] = member
            if first <= self._reached[queue, member] and not is_resumed:
                self.disorder.append(f"{member}, queue {queue}: {first} after {self._reached[queue, member]}")
            self._reached[queue, member] = last

    def _lull(self, queue: Queue, seconds: float, after: str, now: float) -> Lull:
        active = self._active[queue]
        changes = [(now - at, what) for what, at in self._changes if now - at < seconds + EXPLAINED_S / 3]
        return Lull(seconds, queue, max(active, key=active.__getitem__, default=""), after, changes)

    def missing(self, ends: Mapping[Queue, int]) -> int:
        """Return the number of messages before the ends of the queues that no client consumed."""
        with self._lock:
            return sum(end - len(self._last_owner[queue]) for queue, end in ends.items())
