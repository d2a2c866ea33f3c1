"""Ordered consumption: messages of each queue one after the other, queues concurrently.

Owns the rule of order: one worker starts a message when all earlier ones are finished, while the broker holds the
queue's lock for this member; the lock is checked before every call of a handler. A failure pauses the queue until the
message succeeds, or becomes a dead letter after its last attempt.

`put` and `revive` run on the event loop; `work` runs where the workers run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from rmqpy.client.consume_result import HandlerResult
from rmqpy.client.push.handlers import Handlers
from rmqpy.client.push.process_queue import Batch, ProcessQueue
from rmqpy.client.push.worker_pool import Fail, Worker, WorkerPool
from rmqpy.message import ReceivedMessage

log = logging.getLogger(__name__)

#: A worker's turn at one queue ends after this time.
TURN_S: Final = 60.0

#: Schedules a call on the event loop. Any thread.
Later = Callable[[float, Callable[[ProcessQueue], None], ProcessQueue], None]
#: Makes a message a dead letter, with the reason as text, then calls back on the event loop. Any thread.
Bury = Callable[[ProcessQueue, ReceivedMessage, str, Callable[[ProcessQueue], None]], None]


class Ordered:
    """Ordered consumption of owned queues."""

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
        """`suspend_s`: pause of a queue after a failure. `bury` may be `None` if no message is given up."""
        self._pool = pool
        self._handlers = handlers
        self._later = later
        self._bury = bury
        self._suspend_s = suspend_s
        self._attempts_max = attempts_max

    def start(self, fail: Fail) -> None:
        """Start the workers. `fail` is called if one ends early."""
        self._pool.start(self.work, fail)

    def put(self, process_queue: ProcessQueue) -> None:
        """Schedule the pending messages of a queue."""
        if process_queue.attend():
            self._pool.put(process_queue)

    def revive(self, process_queue: ProcessQueue) -> None:
        """Continue a queue after a lost lock or a failure."""
        self.put(process_queue)

    def expire(self, timeout_s: float) -> None:
        """Do nothing: skipping a slow message would break the order."""

    async def work(self, worker: Worker[ProcessQueue], process_queue: ProcessQueue) -> None:
        """Handle messages of one queue, for the rest of the worker's turn."""
        handlers = self._handlers
        until = time.monotonic() + TURN_S
        while front := process_queue.front(worker, handlers.batch_size):
            worker.left -= 1
            batch = front if process_queue.topic else handlers.cut(front)
            try:
                result = await handlers.handle(worker, process_queue.topic or batch[0].topic, batch)
                if process_queue.is_dropped:
                    return
                if not (result.failed or result.dead):
                    process_queue.advance(batch)
                elif self._fail(process_queue, batch, result):
                    return
            finally:
                # Last, because waiters for the end commit finished messages.
                process_queue.leave(worker)
            if worker.left <= 0 or time.monotonic() > until:
                self._pool.put_back(process_queue)
                return

    def _fail(self, process_queue: ProcessQueue, batch: Batch, result: HandlerResult) -> bool:
        """Stop at the first failed message. The queue stays attended, so that the message is retried later."""
        ended = (*result.failed, *result.dead)
        at = next((at for at, message in enumerate(batch) if message in ended), 0)
        if at:
            process_queue.advance(batch[:at])
        process_queue.failures += 1
        is_last = self._attempts_max is not None and process_queue.failures >= self._attempts_max
        if is_last or batch[at] in result.dead:
            if self._bury is None:
                log.warning("message %s failed permanently and is dropped", batch[at].message_id)
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
