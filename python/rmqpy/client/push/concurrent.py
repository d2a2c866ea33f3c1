"""Messages in any order, as many at a time as there are workers.

Owns what becomes of each message: finished, sent back, or, where every member gets every message, given up. A message
whose handler does not return in time is sent back and finished without it.

`put` and `expire` belong to the event loop; `work` runs wherever the crew works.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from rmqpy.client.push.handlers import Handlers
from rmqpy.client.push.owned import Batch, Owned
from rmqpy.client.push.verdict import BY_POLICY, Verdict
from rmqpy.client.push.workers import Crew, Worker

log = logging.getLogger(__name__)

#: Send these messages of a queue back at a delay level; from any thread.
Return = Callable[[Owned, Batch, int], None]

#: The level of a message whose handler took too long, as Java's.
LATE_LEVEL: Final = 3
#: What was done is counted together, so often: counting costs as much as the rest of a message.
COUNT_S: Final = 0.01


class Concurrent:
    """Concurrent consumption."""

    def __init__(
        self, crew: Crew[Owned], handlers: Handlers, give_back: Return, *, is_broadcast: bool
    ) -> None:
        self._crew = crew
        self._handlers = handlers
        self._give_back = give_back
        self._is_broadcast = is_broadcast

    def start(self) -> None:
        """Let the crew begin."""
        self._crew.start(self.work)

    def put(self, owned: Owned) -> None:
        """Have messages handled that `owned` has."""
        self._crew.put(owned)

    def revive(self, owned: Owned) -> None:
        """Nothing waits here for a lock."""

    async def work(self, worker: Worker[Owned], owned: Owned) -> None:
        """Call handlers with messages of one queue, for what is left of the worker's turn."""
        handle, size, topic = self._handlers.handle, self._handlers.batch_size, owned.topic
        is_first = True
        try:
            while worker.left > 0 and (batch := owned.take(worker, size)) is not None:
                worker.left -= 1
                if is_first and owned.has_more:
                    # Others may take from this queue at the same time.
                    self._crew.put_back(owned)
                is_first = False
                verdict = await handle(worker, topic or batch[0].topic, batch)
                if verdict.failed and worker.revoked is not batch:
                    self._fail(owned, batch, verdict)
        finally:
            # Last: whoever waits for the end commits what was finished.
            owned.leave(worker)

    def expire(self, timeout_s: float) -> None:
        """Send back what has been with its handler for longer than that."""
        before = monotonic() - timeout_s
        for worker in self._crew.workers:
            owned = worker.item
            batch = None if owned is None else owned.overdue(worker, before)
            if owned is None or batch is None:
                continue
            log.warning(
                "a handler has been at message %s for %.0f s: it is sent back", batch[0].message_id, timeout_s
            )
            self._fail(owned, batch, Verdict(batch, LATE_LEVEL))

    def _fail(self, owned: Owned, batch: Batch, verdict: Verdict) -> None:
        failed = verdict.failed
        if self._is_broadcast:
            log.warning(
                "%d messages of %s failed and are given up: every member has its own",
                len(failed),
                owned.queue,
            )
            for message in failed:
                owned.release(message)
        elif not owned.is_dropped:
            # What was given up is the new owner's, whole.
            owned.hold(failed)
            self._give_back(owned, failed, verdict.level or BY_POLICY)
