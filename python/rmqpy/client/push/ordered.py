"""Ordered consumption: messages of each queue one after the other; queues side by side.

Owns the rule of order: a message is begun when all before it are finished, by one worker, while the broker keeps
the queue for this member; the lock is looked at before every call of a handler. A failure stops the queue until the
message passes or its attempts are used up and it becomes a dead letter.

`put` and `revive` belong to the event loop; `work` runs wherever the workers run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from rmqpy.client.push.consume_result import HandlerResult
from rmqpy.client.push.handlers import Handlers
from rmqpy.client.push.process_queue import Batch, ProcessQueue
from rmqpy.client.push.worker_pool import Fail, Worker, WorkerPool
from rmqpy.message import ReceivedMessage

log = logging.getLogger(__name__)

#: After so long a worker turns to the next queue that waits, if its turn has not ended before.
TURN_S: Final = 60.0

#: Call back on the event loop after so many seconds; from any thread.
Later = Callable[[float, Callable[[ProcessQueue], None], ProcessQueue], None]
#: Make a message a dead letter, with the reason in words, then call back on the event loop; from any thread.
Bury = Callable[[ProcessQueue, ReceivedMessage, str, Callable[[ProcessQueue], None]], None]


class Ordered:
    """Consumption in order."""

    def __init__(
        self,
        pool: WorkerPool[ProcessQueue],
        handlers: Handlers,
        later: Later,
        bury: Bury | None,
        *,
        suspend_s: float,
        attempts_max: int | None,
    ) -> None:
        """`suspend_s`: pause of a queue after a failure. `bury` may be `None` where nothing is ever given up."""
        self._pool = pool
        self._handlers = handlers
        self._later = later
        self._bury = bury
        self._suspend_s = suspend_s
        self._attempts_max = attempts_max

    def start(self, fail: Fail) -> None:
        """Start the workers. `fail` is called when one ends before its time."""
        self._pool.start(self.work, fail)

    def put(self, process_queue: ProcessQueue) -> None:
        """Have messages handled that `process_queue` has."""
        if process_queue.attend():
            self._pool.put(process_queue)

    def revive(self, process_queue: ProcessQueue) -> None:
        """Go on where a lost lock or a failure made it stop."""
        self.put(process_queue)

    def expire(self, timeout_s: float) -> None:
        """A queue waits for its handler as long as it takes: going on would be out of order."""

    async def work(self, worker: Worker[ProcessQueue], process_queue: ProcessQueue) -> None:
        """Do what lies in one queue, for what is left of the worker's turn."""
        handlers = self._handlers
        until = time.monotonic() + TURN_S
        while front := process_queue.front(worker, handlers.batch_size):
            worker.left -= 1
            batch = front if process_queue.topic else handlers.cut(front)
            try:
                result = await handlers.handle(worker, process_queue.topic or batch[0].topic, batch)
                if process_queue.is_dropped:
                    return
                if not result.failed:
                    process_queue.advance(batch)
                elif self._fail(process_queue, batch, result):
                    return
            finally:
                # Last: waiters for the end commit what was finished.
                process_queue.leave(worker)
            if worker.left <= 0 or time.monotonic() > until:
                self._pool.put_back(process_queue)
                return

    def _fail(self, process_queue: ProcessQueue, batch: Batch, result: HandlerResult) -> bool:
        """Stop at the first message that failed. It is looked at again later: the queue stays attended."""
        at = next((at for at, message in enumerate(batch) if message in result.failed), 0)
        if at:
            process_queue.advance(batch[:at])
        process_queue.failures += 1
        if self._attempts_max is not None and process_queue.failures >= self._attempts_max:
            if self._bury is None:
                log.warning("message %s failed for good and is given up", batch[at].message_id)
                process_queue.advance(batch[at : at + 1])
                return False
            self._bury(process_queue, batch[at], result.error, self._buried)
            return True
        self._later(self._suspend_s if result.after is None else result.after, self._again, process_queue)
        return True

    def _again(self, process_queue: ProcessQueue) -> None:
        process_queue.unattend()
        self.revive(process_queue)

    def _buried(self, process_queue: ProcessQueue) -> None:
        if not process_queue.is_dropped:
            process_queue.advance(process_queue.first())
            self._again(process_queue)
