"""Reads one queue, for as long as it is owned: pull, hand over, pull again.

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
from rmqpy.client.group.subscription import Subscriptions
from rmqpy.client.push.meter import Meter
from rmqpy.client.push.owned import Owned
from rmqpy.client.session import Session
from rmqpy.message import ReceivedMessage
from rmqpy.protocol.codes import ResponseCode
from rmqpy.remoting import pulls
from rmqpy.remoting.client import Caller

log = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
PAUSE_WHEN_BUSY_S: Final = 0.05

Deliver = Callable[[Owned], None]


class Moved(Exception):
    """The queue is to be read from elsewhere: what was fetched lies outside of what the broker holds, or somebody
    has reset the group."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class Reader:
    """Reads queues of one group."""

    def __init__(
        self,
        session: Session,
        caller: Caller,
        group: str,
        subscriptions: Subscriptions,
        deliver: Deliver,
        doubt: Callable[[], None],
        meter: Meter,
        *,
        messages_max: int,
    ) -> None:
        """`doubt`: have the group looked at again, a broker does not answer."""
        self._session = session
        self._caller = caller
        self._group = group
        self._subscriptions = subscriptions
        self._deliver = deliver
        self._doubt = doubt
        self._meter = meter
        self._messages_max = min(messages_max, pulls.MESSAGES_MAX)

    async def read(self, owned: Owned, room: asyncio.Event) -> None:
        """Until the task is cancelled. `room` is set when there may be room again.

        Raises `Moved`, and what no repetition mends.
        """
        suggested = 0
        while not owned.is_dropped:
            room.clear()
            if owned.is_paused or not owned.is_locked or not owned.has_room():
                await room.wait()
                continue
            tags = self._subscriptions.tags(owned.queue.topic)
            began_at = time.monotonic()
            try:
                pulled = await self._pull(owned, tags, suggested)
            except errors.RocketMQError as error:
                await self._bear(owned, error)
                continue
            suggested = pulled.suggested
            if pulled.found is pulls.Found.MOVED:
                log.warning(
                    "%s is read on from %d, not %d: it holds %d to %d, or the group was reset",
                    owned.queue, pulled.next_offset, owned.fetch_at, pulled.begin, pulled.end,
                )  # fmt: skip
                raise Moved(pulled.next_offset)
            messages: list[ReceivedMessage] = []
            if pulled.found is pulls.Found.MESSAGES:
                messages = pulled.call.messages(owned.queue, tags=tags, begin=owned.fetch_at)
                self._meter.pulled(owned.queue.topic, time.monotonic() - began_at, len(messages))
            if owned.put(messages, pulled.next_offset, pulled.call.body_size) and messages:
                self._deliver(owned)

    async def _pull(self, owned: Owned, tags: str, suggested: int) -> pulls.Pulled:
        queue = owned.queue
        route = await self._session.routes.subscribe(queue.topic, self._caller)
        address = route.reader(queue.broker, suggested)
        ext = pulls.request(
            self._group,
            queue,
            owned.fetch_at,
            tags=tags,
            messages_max=self._messages_max,
            suspend_s=pulls.SUSPEND_S,
        )
        timeout = pulls.SUSPEND_S + pulls.REPLY_S
        call = await self._caller.call(address, pulls.PULL, ext, timeout=timeout)
        return pulls.read(call, queue, address)

    async def _bear(self, owned: Owned, error: errors.RocketMQError) -> None:
        if isinstance(
            error, errors.AuthError | errors.GroupNotFound | errors.ClosedError | errors.DecodeError
        ):
            raise error
        if error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
            raise error
        if isinstance(error, errors.FlowControl):
            await self._caller.sleep(PAUSE_WHEN_BUSY_S)
            return
        log.warning("reading %s failed and is tried again: %s", owned.queue, error)
        self._session.routes.doubt(owned.queue.topic)
        self._doubt()
        await self._caller.sleep(PAUSE_S)
