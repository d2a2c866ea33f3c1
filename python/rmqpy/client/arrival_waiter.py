"""Waiting for queues to grow, without asking again and again: brokers hold a pull until there is something.

Owns one pull for each queue that is waited for. It outlives the wait: the next one for the same offset finds it where
it is, so that a queue costs a request when a message comes, or every `SUSPEND_S`. For one thread.
"""

import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy._native import Call
from rmqpy.client.cluster import ClusterConnection
from rmqpy.message import MessageQueue
from rmqpy.remoting import pulls
from rmqpy.remoting.client import BlockingCaller, run

#: The group such pulls are made under. Nothing is committed to it.
GROUP: Final = "rmqpy-catalog"
#: Time after which a queue that could not be asked is asked again.
ROUND_S: Final = 1.0


class _Pull(NamedTuple):
    """A pull that a broker was asked to hold."""

    queue: MessageQueue
    offset: int
    address: str


class ArrivalWaiter:
    """Tells when there is something to read."""

    def __init__(self, cluster: ClusterConnection, caller: BlockingCaller) -> None:
        self._cluster = cluster
        self._inbox = caller.inbox()
        self._caller = caller
        self._held: dict[int, _Pull] = {}
        self._token = 0

    def wait(self, offsets: Mapping[MessageQueue, int], timeout: float) -> bool:
        """Until a queue has a message at its offset or later; False when `timeout` seconds passed first.

        A queue whose broker cannot be asked ends no wait.
        """
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            self._hold(offsets)
            if self._has_come(min(left, ROUND_S)):
                return True
        return False

    def close(self) -> None:
        """Forget what is held. Idempotent."""
        self._inbox.close()

    def _hold(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Have one pull held for each of these queues, and forget the others."""
        self._held = {
            token: pull for token, pull in self._held.items() if offsets.get(pull.queue) == pull.offset
        }
        held = {pull.queue for pull in self._held.values()}
        for queue, offset in offsets.items():
            if queue not in held:
                self._pull(queue, offset)

    def _pull(self, queue: MessageQueue, offset: int) -> None:
        try:
            route = run(self._cluster.routes.subscribe(queue.topic, self._caller))
            address = route.reader(queue.broker)
        except errors.RocketMQError:
            return
        ext = pulls.request(GROUP, queue, offset, tags="*", messages_max=1, suspend_s=pulls.SUSPEND_S)
        self._token += 1
        self._held[self._token] = _Pull(queue, offset, address)
        self._cluster.client.call(
            address,
            pulls.PULL,
            ext,
            timeout_ms=round((pulls.SUSPEND_S + pulls.REPLY_S) * 1000),
            completions=self._inbox.completions,
            token=self._token,
        )

    def _has_come(self, timeout: float) -> bool:
        """True when a pull comes back with something within so many seconds."""
        deadline = time.monotonic() + timeout
        while run(self._inbox.wait(max(0.0, deadline - time.monotonic()))):
            news = [self._is_news(token, call) for token, call in self._inbox.take()]
            if any(news):
                return True
        return False

    def _is_news(self, token: int, call: Call) -> bool:
        pull = self._held.pop(token, None)
        if pull is None:
            # Forgotten.
            return False
        try:
            return pulls.read(call, pull.queue, pull.address).found is not pulls.Found.NOTHING
        except errors.RocketMQError:
            self._cluster.routes.doubt(pull.queue.topic)
            return False
