"""Concurrent consumption: messages in any order, as many at a time as there are workers.

Owns what becomes of each message: finished, sent back, or, where every member gets every message, given up. A message
whose handler does not return in time is sent back and finished without it.

`put` and `expire` belong to the event loop; `work` runs wherever the workers run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from rmqpy.client.push.consume_result import BY_POLICY, HandlerResult
from rmqpy.client.push.handlers import Handlers
from rmqpy.client.push.process_queue import Batch, ProcessQueue
from rmqpy.client.push.worker_pool import Fail, Worker, WorkerPool

log = logging.getLogger(__name__)

#: Send these messages of a queue back at a delay level, with the reason in words; from any thread.
Return = Callable[[ProcessQueue, Batch, int, str], None]

#: The level of a message whose handler took too long, as Java's.
LATE_LEVEL: Final = 3


class Concurrent:
    """Concurrent consumption."""

    def __init__(
        self, pool: WorkerPool[ProcessQueue], handlers: Handlers, give_back: Return, *, is_broadcast: bool
    ) -> None:
        self._pool = pool
        self._handlers = handlers
        self._give_back = give_back
        self._is_broadcast = is_broadcast

    def start(self, fail: Fail) -> None:
        """Start the workers. `fail` is called when one ends before its time."""
        self._pool.start(self.work, fail)

    def put(self, process_queue: ProcessQueue) -> None:
        """Have messages handled that `process_queue` has."""
        self._pool.put(process_queue)

    def revive(self, process_queue: ProcessQueue) -> None:
        """Nothing waits here for a lock."""

    async def work(self, worker: Worker[ProcessQueue], process_queue: ProcessQueue) -> None:
        """Call handlers with messages of one queue, for what is left of the worker's turn."""
        handle, size, topic = self._handlers.handle, self._handlers.batch_size, process_queue.topic
        is_first = True
        try:
            while worker.left > 0 and (batch := process_queue.take(worker, size)) is not None:
                worker.left -= 1
                if is_first and process_queue.has_more:
                    # Others may take from this queue at the same time.
                    self._pool.put_back(process_queue)
                is_first = False
                try:
                    result = await handle(worker, topic or batch[0].topic, batch)
                except BaseException:
                    # This worker ends in the middle of it.
                    process_queue.hold(batch)
                    raise
                if result.failed and worker.revoked is not batch:
                    self._fail(process_queue, batch, result)
        finally:
            # Last: waiters for the end commit what was finished.
            process_queue.leave(worker)

    def expire(self, timeout_s: float) -> None:
        """Send back what has been with its handler for longer than that."""
        before = monotonic() - timeout_s
        for worker in self._pool.workers:
            process_queue = worker.item
            batch = None if process_queue is None else process_queue.overdue(worker, before)
            if process_queue is None or batch is None:
                continue
            log.warning(
                "a handler has been at message %s for %.0f s: it is sent back", batch[0].message_id, timeout_s
            )
            error = f"the handler did not return within {timeout_s:g} s"
            self._fail(process_queue, batch, HandlerResult(batch, LATE_LEVEL, error=error))

    def _fail(self, process_queue: ProcessQueue, batch: Batch, result: HandlerResult) -> None:
        failed = result.failed
        if self._is_broadcast:
            log.warning(
                "%d messages of %s failed and are given up: every member has its own",
                len(failed),
                process_queue.queue,
            )
            for message in failed:
                process_queue.release(message)
        elif not process_queue.is_dropped:
            # What was given up is the new owner's, whole.
            process_queue.hold(failed)
            self._give_back(process_queue, failed, result.level or BY_POLICY, result.error)
