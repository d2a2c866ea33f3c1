"""Messages in any order, as many at a time as there are workers.

Owns how fetched messages become work, and what becomes of each: finished, sent back, or, where every member gets
every message, given up. A message whose handler does not return in time is sent back and finished without it.

`put` and `expire` belong to the event loop; `work` runs wherever the crew works.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from rmqpy.client.push.handlers import Handlers
from rmqpy.client.push.owned import Owned
from rmqpy.client.push.verdict import BY_POLICY, Verdict
from rmqpy.client.push.workers import Crew
from rmqpy.message import ReceivedMessage

log = logging.getLogger(__name__)

Batch = Sequence[ReceivedMessage]
#: Send these messages of a queue back at a delay level; from any thread.
Return = Callable[[Owned, Batch, int], None]

#: Batches that one worker takes at a time: few enough to share a reply among the crew.
SHARES: Final = 4
RUN_MAX: Final = 32
#: The level of a message whose handler took too long, as Java's.
LATE_LEVEL: Final = 3


class Run:
    """Batches of one queue that one worker does one after the other."""

    __slots__ = ("batches", "began_at", "next", "owned")

    def __init__(self, owned: Owned, batches: Sequence[Batch]) -> None:
        self.owned = owned
        self.batches = batches
        self.next = 0
        self.began_at = 0.0


class Concurrent:
    """Concurrent consumption."""

    def __init__(self, crew: Crew[Run], handlers: Handlers, give_back: Return, *, is_broadcast: bool) -> None:
        self._crew = crew
        self._handlers = handlers
        self._give_back = give_back
        self._is_broadcast = is_broadcast
        self._lock = threading.Lock()
        self._running: set[Run] = set()

    def start(self) -> None:
        """Let the crew begin."""
        self._crew.start(self.work)

    def put(self, owned: Owned, messages: Batch) -> None:
        """Have messages handled that `owned` has."""
        batches = self._handlers.cut(messages)
        size = max(1, min(RUN_MAX, len(batches) // (self._crew.size * SHARES)))
        for at in range(0, len(batches), size):
            self._crew.put(Run(owned, batches[at : at + size]))

    def revive(self, owned: Owned) -> None:
        """Nothing waits here for a lock."""

    async def work(self, run: Run) -> None:
        """Do one run."""
        while run.next < len(run.batches) and run.owned.begin():
            batch = run.batches[run.next]
            with self._lock:
                run.began_at = time.monotonic()
                self._running.add(run)
            try:
                verdict = await self._handlers.handle(batch)
                with self._lock:
                    is_late = run not in self._running
                    self._running.discard(run)
                if is_late:
                    return
                run.next += 1
                self._conclude(run.owned, batch, verdict)
            finally:
                # Last: whoever waits for the end commits what was finished.
                run.owned.end()

    def expire(self, timeout_s: float) -> None:
        """Send back what has been with its handler for longer than that, and let others do the rest of its run."""
        now = time.monotonic()
        with self._lock:
            late = [run for run in self._running if now - run.began_at > timeout_s]
            self._running.difference_update(late)
        for run in late:
            batch = run.batches[run.next]
            log.warning(
                "a handler has been at message %s for %.0f s: it is sent back", batch[0].message_id, timeout_s
            )
            self._conclude(run.owned, batch, Verdict(batch, LATE_LEVEL))
            self._crew.put(Run(run.owned, run.batches[run.next + 1 :]))

    def _conclude(self, owned: Owned, batch: Batch, verdict: Verdict) -> None:
        failed = verdict.failed
        if not failed:
            owned.finish(batch)
        elif self._is_broadcast:
            log.warning(
                "%d messages of %s failed and are given up: every member has its own",
                len(failed),
                owned.queue,
            )
            owned.finish(batch)
        elif not owned.is_dropped:
            # What was given up is the new owner's, whole.
            owned.finish(message for message in batch if message not in failed)
            self._give_back(owned, failed, verdict.level or BY_POLICY)
