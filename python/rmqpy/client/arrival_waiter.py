"""Arrival waiter: waits for queues to grow without polling; brokers hold a pull until there is something.

Owns one pull for each queue that is waited for. It outlives the wait: the next one for the same offset finds it where
it is, so that a queue costs a request when a message comes, or every `SUSPEND_S`. For one thread.
"""

import time
from collections.abc import Mapping
from typing import Final

from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.puller import Puller, PullPlan, QueuePull
from rmqpy.message import MessageQueue
from rmqpy.remoting import pulls
from rmqpy.remoting.client import BlockingCaller, run

#: The group such pulls are made under. Nothing is committed to it.
GROUP: Final = "rmqpy-catalog"
#: Time after which a queue is asked again whose broker did not hold the pull.
ROUND_S: Final = 1.0


class ArrivalWaiter:
    """Tells when there is something to read."""

    def __init__(self, cluster: ClusterConnection, caller: BlockingCaller) -> None:
        plan = PullPlan(GROUP, messages_max=1)
        self._puller: Puller[QueuePull] = Puller(caller, cluster.routes, plan)
        self._held: dict[MessageQueue, QueuePull] = {}

    def wait(self, offsets: Mapping[MessageQueue, int], timeout: float) -> bool:
        """Until a queue has a message at its offset or later; False when `timeout` seconds passed first.

        A queue whose broker cannot be asked ends no wait.
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
        """Forget what is held. Idempotent."""
        self._puller.close()

    def _hold(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Have pulls for these queues, and forget the others."""
        known = self._held
        self._held = {}
        for queue, offset in offsets.items():
            pull = known.pop(queue, None) or QueuePull(queue, offset)
            if pull.offset != offset:
                pull.move(offset)
            self._held[queue] = pull
        for pull in known.values():
            pull.token = 0
