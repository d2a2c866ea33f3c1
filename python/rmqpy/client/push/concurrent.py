"""Concurrent consumption: messages in any order, one for each worker at a time.

Owns the outcome of each message: finished, sent back, or, for broadcasting, dropped. A message whose handler exceeds
the timeout is sent back, and finished without it.

`put` and `expire` run on the event loop; `work` runs where the workers run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from rmqpy.client.consume_result import BY_POLICY, HandlerResult
from rmqpy.client.push.handlers import Handlers
from rmqpy.client.push.process_queue import Batch, ProcessQueue
from rmqpy.client.push.worker_pool import Fail, Worker, WorkerPool

log = logging.getLogger(__name__)

#: Sends messages of a queue back at a delay level, with the reason as text. Any thread.
Return = Callable[[ProcessQueue, Batch, int, str], None]

#: Makes messages of a queue dead letters, with the reason as text. Any thread.
Bury = Callable[[ProcessQueue, Batch, str], None]

#: The delay level of a message whose handler timed out, as in Java.
LATE_LEVEL: Final = 3


class Concurrent:
    """Concurrent consumption of owned queues."""

    def __init__(
        self,
        pool: WorkerPool[ProcessQueue],
        handlers: Handlers,
        give_back: Return,
        bury: Bury,
        *,
        is_broadcast: bool,
    ) -> None:
        self._pool = pool
        self._handlers = handlers
        self._give_back = give_back
        self._bury = bury
        self._is_broadcast = is_broadcast

    def start(self, fail: Fail) -> None:
        """Start the workers. `fail` is called if one ends early."""
        self._pool.start(self.work, fail)

    def put(self, process_queue: ProcessQueue) -> None:
        """Schedule the pending messages of a queue."""
        self._pool.put(process_queue)

    def revive(self, process_queue: ProcessQueue) -> None:
        """Do nothing: concurrent consumption needs no locks."""

    async def work(self, worker: Worker[ProcessQueue], process_queue: ProcessQueue) -> None:
        """Call handlers with messages of one queue, for the rest of the worker's turn."""
        handle, size, topic = self._handlers.handle, self._handlers.batch_size, process_queue.topic
        is_first = True
        try:
            while worker.left > 0 and (batch := process_queue.take(worker, size)) is not None:
                worker.left -= 1
                if is_first and process_queue.has_more:
                    # Other workers may take messages of this queue concurrently.
                    self._pool.put_back(process_queue)
                is_first = False
                try:
                    result = await handle(worker, topic or batch[0].topic, batch)
                except BaseException:
                    # The worker ends before its batch is finished.
                    process_queue.hold(batch)
                    raise
                if (result.failed or result.dead) and worker.revoked is not batch:
                    self._fail(process_queue, result)
        finally:
            # Last, because waiters for the end commit finished messages.
            process_queue.leave(worker)

    def expire(self, timeout_s: float) -> None:
        """Send back messages whose handler has run for longer than `timeout_s`."""
        before = monotonic() - timeout_s
        for worker in self._pool.workers:
            process_queue = worker.item
            batch = None if process_queue is None else process_queue.overdue(worker, before)
            if process_queue is None or batch is None:
                continue
            log.warning(
                "handler timeout: message %s has run for %.0f s and is sent back",
                batch[0].message_id,
                timeout_s,
            )
            error = f"the handler did not return within {timeout_s:g} s"
            self._fail(process_queue, HandlerResult(batch, LATE_LEVEL, error=error))

    def _fail(self, process_queue: ProcessQueue, result: HandlerResult) -> None:
        failed = (*result.failed, *result.dead)
        if self._is_broadcast:
            log.warning(
                "%d messages of %s failed and are dropped: broadcast consumers do not retry",
                len(failed),
                process_queue.queue,
            )
            for message in failed:
                process_queue.release(message)
        elif not process_queue.is_dropped:
            # Messages of a released queue belong to the new owner.
            process_queue.hold(failed)
            if result.failed:
                self._give_back(process_queue, result.failed, result.level or BY_POLICY, result.error)
            if result.dead:
                self._bury(process_queue, result.dead, result.error)
