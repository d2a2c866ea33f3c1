"""Arrival waiter: waits for queues to grow without polling, by pulls that brokers hold.

Owns one pull for each queue. The pull outlives the wait: the next wait for the same offset reuses it, so that a queue
costs one request for each arriving message, or every `SUSPEND_S`. For one thread.
"""

import time
from collections.abc import Mapping
from typing import Final

from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.pull.puller import Puller, PullPlan, QueuePull
from rmqpy.message import MessageQueue
from rmqpy.remoting import pulls
from rmqpy.remoting.client import BlockingCaller, run

#: The group of these pulls. They commit nothing.
GROUP: Final = "rmqpy-catalog"
#: Interval at which a queue is pulled again if its broker did not hold the pull.
ROUND_S: Final = 1.0


class ArrivalWaiter:
    """Waits until there is something to read."""

    def __init__(self, cluster: ClusterConnection, caller: BlockingCaller) -> None:
        plan = PullPlan(GROUP, messages_max=1)
        self._puller: Puller[QueuePull] = Puller(caller, cluster.routes, plan)
        self._held: dict[MessageQueue, QueuePull] = {}

    def wait(self, offsets: Mapping[MessageQueue, int], timeout: float) -> bool:
        """Wait until a queue has a message at its offset or later; return False after `timeout` seconds.

        A queue with an unreachable broker does not end the wait.
        """
        deadline = time.monotonic() + timeout
        self._hold(offsets)
        while (left := deadline - time.monotonic()) > 0:
            run(self._puller.look_up(self._held.values()))
            self._puller.start(self._held.values())
            run(self._puller.wait(self._held.values(), left))
            has_come = False
            for pull, pulled in self._puller.completed():
                if pulled.found is pulls.Found.NOTHING:
                    pull.rest(ROUND_S)
                else:
                    has_come = True
            if has_come:
                return True
        return False

    def close(self) -> None:
        """Drop the held pulls. Idempotent."""
        self._puller.close()

    def _hold(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Start missing pulls for these queues, and drop those of other queues."""
        known = self._held
        self._held = {}
        for queue, offset in offsets.items():
            pull = known.pop(queue, None) or QueuePull(queue, offset)
            if pull.offset != offset:
                pull.move(offset)
            self._held[queue] = pull
        for pull in known.values():
            pull.token = 0
