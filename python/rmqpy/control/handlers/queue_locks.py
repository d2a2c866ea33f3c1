"""Queue locks for ordered consumption. On the event loop."""

from __future__ import annotations

from rmqpy.control.groups.queue_locks import QueueLocks
from rmqpy.control.groups.table import Groups
from rmqpy.control.topics.table import Topics
from rmqpy.protocol import names
from rmqpy.protocol.requests.locks import LockBatchMq, LockedQueues, UnlockBatchMq
from rmqpy.remoting.server import handles


class QueueLockHandlers:
    """Lock and unlock queues."""

    def __init__(self, locks: QueueLocks, topics: Topics, groups: Groups) -> None:
        self._locks = locks
        self._topics = topics
        self._groups = groups

    @handles(LockBatchMq)
    def lock(self, ask: LockBatchMq) -> LockedQueues:
        batch = ask.body
        # Locks need an existing group and queue: a member registers its group before it locks.
        is_group = (
            batch.consumer_group in self._groups.table and batch.consumer_group != names.TRANSACTION_GROUP
        )
        queues = [queue for queue in batch.mq_set if self._topics.has_queue(queue.topic, queue.queue_id)]
        granted = self._locks.lock(batch.consumer_group, batch.client_id, queues if is_group else ())
        return LockedQueues(lock_ok_mq_set=granted)

    @handles(UnlockBatchMq)
    def unlock(self, ask: UnlockBatchMq) -> None:
        batch = ask.body
        self._locks.unlock(batch.consumer_group, batch.client_id, batch.mq_set)
