"""Ledger of a pull group: messages sent, delivered, finished and committed.

Owns the rules that hold whatever members do. A message is finished when its member polls again, commits
or closes after receiving it, but not when the member ends with an exception. Then, for each queue:

- delivered messages were sent, and deliveries skip no message that no member has received;
- a committed offset lies behind finished messages only, and goes back only at a broker that was silent.

Any thread.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping

import rmqpy
from rmqpy.message import MessageQueue


class Ledger:
    """The books of one group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Offsets from the first on, without a gap.
        self._handed: dict[MessageQueue, int] = defaultdict(int)
        self._finished: dict[MessageQueue, set[int]] = defaultdict(set)
        self._frontier: dict[MessageQueue, int] = defaultdict(int)
        #: The end of each queue.
        self.sent: dict[MessageQueue, int] = defaultdict(int)
        self.committed: dict[MessageQueue, int] = {}

    def send(self, sent: rmqpy.SendResult) -> None:
        with self._lock:
            self.sent[sent.queue] = max(self.sent[sent.queue], sent.queue_offset + 1)

    def hand_out(self, who: str, messages: Iterable[rmqpy.ReceivedMessage]) -> None:
        """A member was given these."""
        with self._lock:
            for message in messages:
                queue, offset = message.queue, message.queue_offset
                assert offset <= self._handed[queue], (
                    f"{who} was given {queue} {offset}, but nobody {self._handed[queue]}"
                )
                self._handed[queue] = max(self._handed[queue], offset + 1)

    def finish(self, messages: Iterable[rmqpy.ReceivedMessage]) -> None:
        """A member is done with these."""
        with self._lock:
            for message in messages:
                queue = message.queue
                self._finished[queue].add(message.queue_offset)
                while self._frontier[queue] in self._finished[queue]:
                    self._finished[queue].discard(self._frontier[queue])
                    self._frontier[queue] += 1

    def check(
        self, committed: Mapping[MessageQueue, int | None], may_go_back: Container[str] = frozenset()
    ) -> int:
        """Compare with the brokers' committed offsets; return how often they went back, where they may."""
        back = 0
        with self._lock:
            for queue, offset in committed.items():
                before = self.committed.get(queue, 0)
                if (offset or 0) < before:
                    assert queue.broker in may_go_back, (
                        f"progress of {queue} went back from {before} to {offset}"
                    )
                    back += 1
                done = self._frontier[queue]
                assert (offset or 0) <= done, f"progress of {queue} is {offset}, finished is {done}"
                if offset is not None:
                    self.committed[queue] = offset
        return back

    @property
    def unfinished(self) -> dict[MessageQueue, tuple[int, int]]:
        """Queues of which something is not finished with: the first such offset, and the end."""
        with self._lock:
            return {
                queue: (self._frontier[queue], end)
                for queue, end in self.sent.items()
                if self._frontier[queue] < end
            }
