"""Queue reader: pulls one owned queue in a loop and passes on its messages.

Transient failures are retried; permanent ones are raised. For its caller's event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from rmqpy.client.group.subscription import Subscriptions
from rmqpy.client.pull.puller import Puller, QueuePull
from rmqpy.client.push.process_queue import ProcessQueue
from rmqpy.client.push.statistics import ConsumeStatistics
from rmqpy.message import ReceivedMessage, tags_of
from rmqpy.remoting import pulls

log = logging.getLogger(__name__)


class Moved(Exception):
    """The queue must be read from another offset: the old one is outside the broker's range, or the
    group was reset."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class QueueReader:
    """The reads of one group's queues."""

    def __init__(
        self,
        puller: Puller[QueuePull],
        subscriptions: Subscriptions,
        deliver: Callable[[ProcessQueue], None],
        statistics: ConsumeStatistics,
    ) -> None:
        self._puller = puller
        self._subscriptions = subscriptions
        self._deliver = deliver
        self._statistics = statistics

    async def read(self, process_queue: ProcessQueue, room: asyncio.Event) -> None:
        """Read until the task is cancelled. `room` is set when there may be room again.

        Raises `Moved`, and errors that no retry can mend.
        """
        queue = process_queue.queue
        pull = QueuePull(queue, process_queue.fetch_at)
        while not process_queue.is_dropped:
            room.clear()
            if process_queue.is_paused or not process_queue.is_locked or not process_queue.has_room():
                await room.wait()
                continue
            pull.wanted = self._subscriptions.filter(queue.topic)
            began_at = time.monotonic()
            pulled = await self._puller.pull(pull)
            if pulled is None:
                continue
            if pulled.found is pulls.Found.MOVED:
                log.warning(
                    "%s: resuming at %d instead of %d: broker min=%d max=%d, or the group was reset",
                    queue, pulled.next_offset, pull.offset, pulled.begin, pulled.end,
                )  # fmt: skip
                raise Moved(pulled.next_offset)
            messages: list[ReceivedMessage] = []
            if pulled.found is pulls.Found.MESSAGES:
                messages = pulled.call.messages(
                    queue, tags=tags_of(pull.wanted), begin=pull.offset, namespace=self._puller.namespace
                )
                self._statistics.pulled(queue.topic, time.monotonic() - began_at, len(messages))
            pull.advance(pulled)
            if process_queue.put(messages, pulled.next_offset, pulled.call.body_size) and messages:
                self._deliver(process_queue)
