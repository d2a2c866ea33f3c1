"""Queue locks for ordered consumption. On the event loop."""

from __future__ import annotations

from rmqpy.control.groups.queue_locks import QueueLocks
from rmqpy.control.groups.table import Groups
from rmqpy.control.topics.logical_queues import LogicalQueues
from rmqpy.control.topics.table import Topics
from rmqpy.protocol import names
from rmqpy.protocol.requests.locks import LockBatchMq, LockedQueues, UnlockBatchMq
from rmqpy.protocol.static_topics import is_pseudo_broker
from rmqpy.remoting.server import handles


class QueueLockHandlers:
    """Lock and unlock queues."""

    def __init__(self, locks: QueueLocks, topics: Topics, logical: LogicalQueues, groups: Groups) -> None:
        self._locks = locks
        self._logical = logical
        self._topics = topics
        self._groups = groups

    @handles(LockBatchMq)
    def lock(self, ask: LockBatchMq) -> LockedQueues:
        batch = ask.body
        # Locks need an existing group and queue: a member registers its group before it locks.
        is_group = (
            self._groups.get(batch.consumer_group) is not None
            and batch.consumer_group != names.TRANSACTION_GROUP
        )
        queues = [
            queue
            for queue in batch.mq_set
            if (
                self._logical.leads(queue.topic, queue.queue_id)
                if is_pseudo_broker(queue.broker_name)
                else self._topics.has_queue(queue.topic, queue.queue_id)
            )
        ]
        granted = self._locks.lock(batch.consumer_group, batch.client_id, queues if is_group else ())
        return LockedQueues(lock_ok_mq_set=granted)

    @handles(UnlockBatchMq)
    def unlock(self, ask: UnlockBatchMq) -> None:
        batch = ask.body
        self._locks.unlock(batch.consumer_group, batch.client_id, batch.mq_set)
