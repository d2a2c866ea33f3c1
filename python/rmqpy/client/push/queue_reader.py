"""Queue reader: reads one queue for as long as it is owned: pull, hand over, pull again.

Owns what a pull that fails means. Most failures pass: the route is doubted and the pull repeated. What no repetition
mends is raised. For the event loop its caller belongs to.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.subscription import Subscriptions
from rmqpy.client.push.process_queue import ProcessQueue
from rmqpy.client.push.statistics import ConsumeStatistics
from rmqpy.message import ReceivedMessage
from rmqpy.protocol.codes import ResponseCode
from rmqpy.remoting import pulls
from rmqpy.remoting.client import Caller

log = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
PAUSE_WHEN_BUSY_S: Final = 0.05

Deliver = Callable[[ProcessQueue], None]


class Moved(Exception):
    """The queue is to be read from elsewhere: what was fetched lies outside of what the broker holds, or the
    group was reset."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class QueueReader:
    """Reads queues of one group."""

    def __init__(
        self,
        cluster: ClusterConnection,
        caller: Caller,
        group: str,
        subscriptions: Subscriptions,
        deliver: Deliver,
        doubt: Callable[[], None],
        statistics: ConsumeStatistics,
        *,
        messages_max: int,
    ) -> None:
        """`doubt`: have the group looked at again, a broker does not answer."""
        self._cluster = cluster
        self._caller = caller
        self._group = group
        self._subscriptions = subscriptions
        self._deliver = deliver
        self._doubt = doubt
        self._statistics = statistics
        self._messages_max = min(messages_max, pulls.MESSAGES_MAX)

    async def read(self, process_queue: ProcessQueue, room: asyncio.Event) -> None:
        """Until the task is cancelled. `room` is set when there may be room again.

        Raises `Moved`, and what no repetition mends.
        """
        suggested = 0
        while not process_queue.is_dropped:
            room.clear()
            if process_queue.is_paused or not process_queue.is_locked or not process_queue.has_room():
                await room.wait()
                continue
            tags = self._subscriptions.tags(process_queue.queue.topic)
            began_at = time.monotonic()
            try:
                pulled = await self._pull(process_queue, tags, suggested)
            except errors.RocketMQError as error:
                await self._tolerate(process_queue, error)
                continue
            suggested = pulled.suggested
            if pulled.found is pulls.Found.MOVED:
                log.warning(
                    "%s is read on from %d, not %d: it holds %d to %d, or the group was reset",
                    process_queue.queue, pulled.next_offset, process_queue.fetch_at, pulled.begin, pulled.end,
                )  # fmt: skip
                raise Moved(pulled.next_offset)
            messages: list[ReceivedMessage] = []
            if pulled.found is pulls.Found.MESSAGES:
                messages = pulled.call.messages(process_queue.queue, tags=tags, begin=process_queue.fetch_at)
                self._statistics.pulled(process_queue.queue.topic, time.monotonic() - began_at, len(messages))
            if process_queue.put(messages, pulled.next_offset, pulled.call.body_size) and messages:
                self._deliver(process_queue)

    async def _pull(self, process_queue: ProcessQueue, tags: str, suggested: int) -> pulls.Pulled:
        queue = process_queue.queue
        route = await self._cluster.routes.subscribe(queue.topic, self._caller)
        address = route.reader(queue.broker, suggested)
        ext = pulls.request(
            self._group,
            queue,
            process_queue.fetch_at,
            tags=tags,
            messages_max=self._messages_max,
            suspend_s=pulls.SUSPEND_S,
        )
        timeout = pulls.SUSPEND_S + pulls.REPLY_S
        call = await self._caller.call(address, pulls.PULL, ext, timeout=timeout)
        return pulls.read(call, queue, address)

    async def _tolerate(self, process_queue: ProcessQueue, error: errors.RocketMQError) -> None:
        if isinstance(
            error, errors.AuthError | errors.GroupNotFound | errors.ClosedError | errors.DecodeError
        ):
            raise error
        if error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
            raise error
        if isinstance(error, errors.FlowControl):
            await self._caller.sleep(PAUSE_WHEN_BUSY_S)
            return
        log.warning("reading %s failed and is tried again: %s", process_queue.queue, error)
        self._cluster.routes.doubt(process_queue.queue.topic)
        self._doubt()
        await self._caller.sleep(PAUSE_S)
