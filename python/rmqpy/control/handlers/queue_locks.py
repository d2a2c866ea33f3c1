"""Locks of queues for consumption in order. Runs on the event loop."""

from __future__ import annotations

from rmqpy.control.groups.queue_locks import QueueLocks
from rmqpy.protocol.requests.locks import LockBatchMq, LockedQueues, UnlockBatchMq
from rmqpy.remoting.server import handles


class QueueLockHandlers:
    """Lock and unlock."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks

    @handles(LockBatchMq)
    def lock(self, ask: LockBatchMq) -> LockedQueues:
        batch = ask.body
        granted = self._locks.lock(batch.consumer_group, batch.client_id, batch.mq_set)
        return LockedQueues(lock_ok_mq_set=granted)

    @handles(UnlockBatchMq)
    def unlock(self, ask: UnlockBatchMq) -> None:
        batch = ask.body
        self._locks.unlock(batch.consumer_group, batch.client_id, batch.mq_set)
