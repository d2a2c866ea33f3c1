"""Messages of each queue one after the other; queues side by side.

Owns the rule of order: a message is begun when all before it are finished, by one worker, while the broker keeps
the queue for this member; the lock is looked at before every call of a handler. A failure stops the queue until the
message passes or its attempts are used up and it becomes a dead letter.

`put` and `revive` belong to the event loop; `work` runs wherever the crew works.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from rmqpy.client.push.handlers import Handlers
from rmqpy.client.push.owned import Batch, Owned
from rmqpy.client.push.verdict import Verdict
from rmqpy.client.push.workers import Crew, Worker
from rmqpy.message import ReceivedMessage

log = logging.getLogger(__name__)

#: After so long a worker turns to the next queue that waits, if its turn has not ended before.
TURN_S: Final = 60.0

#: Call back on the event loop after so many seconds; from any thread.
Later = Callable[[float, Callable[[Owned], None], Owned], None]
#: Make a message a dead letter, then call back on the event loop; from any thread.
Bury = Callable[[Owned, ReceivedMessage, Callable[[Owned], None]], None]


class Ordered:
    """Consumption in order."""

    def __init__(
        self,
        crew: Crew[Owned],
        handlers: Handlers,
        later: Later,
        bury: Bury | None,
        *,
        suspend_s: float,
        attempts_max: int | None,
    ) -> None:
        """`suspend_s`: pause of a queue after a failure. `bury` may be `None` where nothing is ever given up."""
        self._crew = crew
        self._handlers = handlers
        self._later = later
        self._bury = bury
        self._suspend_s = suspend_s
        self._attempts_max = attempts_max

    def start(self) -> None:
        """Let the crew begin."""
        self._crew.start(self.work)

    def put(self, owned: Owned) -> None:
        """Have messages handled that `owned` has."""
        if owned.attend():
            self._crew.put(owned)

    def revive(self, owned: Owned) -> None:
        """Go on where a lost lock or a failure made it stop."""
        self.put(owned)

    def expire(self, timeout_s: float) -> None:
        """A queue waits for its handler as long as it takes: going on would be out of order."""

    async def work(self, worker: Worker[Owned], owned: Owned) -> None:
        """Do what lies in one queue, for what is left of the worker's turn."""
        handlers = self._handlers
        until = time.monotonic() + TURN_S
        while front := owned.front(worker, handlers.batch_size):
            worker.left -= 1
            batch = front if owned.topic else handlers.cut(front)
            try:
                verdict = await handlers.handle(worker, owned.topic or batch[0].topic, batch)
                if owned.is_dropped:
                    return
                if not verdict.failed:
                    owned.advance(batch)
                elif self._fail(owned, batch, verdict):
                    return
            finally:
                # Last: whoever waits for the end commits what was finished.
                owned.leave(worker)
            if worker.left <= 0 or time.monotonic() > until:
                self._crew.put_back(owned)
                return

    def _fail(self, owned: Owned, batch: Batch, verdict: Verdict) -> bool:
        """Stop at the first message that failed. It is looked at again later: the line stays attended."""
        at = next((at for at, message in enumerate(batch) if message in verdict.failed), 0)
        if at:
            owned.advance(batch[:at])
        owned.failures += 1
        if self._attempts_max is not None and owned.failures >= self._attempts_max:
            if self._bury is None:
                log.warning("message %s failed for good and is given up", batch[at].message_id)
                owned.advance(batch[at : at + 1])
                return False
            self._bury(owned, batch[at], self._buried)
            return True
        self._later(self._suspend_s if verdict.after is None else verdict.after, self._again, owned)
        return True

    def _again(self, owned: Owned) -> None:
        owned.unattend()
        self.revive(owned)

    def _buried(self, owned: Owned) -> None:
        if not owned.is_dropped:
            owned.advance(owned.first())
            self._again(owned)
