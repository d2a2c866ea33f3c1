"""Sources: a work queue, whose messages workers share, and a broadcast, of which each reader gets all messages.

Run in the event loop of their link.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from rmqpy import errors
from rmqpy._native import ReceivedMessage
from rmqpy.client.pull.consumer_async import AsyncPullConsumer
from rmqpy.client.simple.consumer_async import AsyncSimpleConsumer
from rmqpy.contrib.kombu import payloads
from rmqpy.contrib.kombu.green import new_lock
from rmqpy.contrib.kombu.link import READY_MAX, Delivery, Link
from rmqpy.contrib.work import BATCH_MAX
from rmqpy.message import MessageQueue
from rmqpy.remoting.backoff import FAILING
from rmqpy.remoting.waiting import wait_at_most

log = logging.getLogger(__name__)

#: Offsets by queue.
Positions = Mapping[MessageQueue, int]
#: Seconds that a receive waits for a message; the longest delay of `close`.
WAIT_S: Final = 1.0
#: Messages that a channel without a prefetch limit holds.
HELD_MAX: Final = 10_000
#: Seconds for which a message beyond the prefetch limit is kept, before another worker gets it.
SPARE_S: Final = 1.0


class Room:
    """The prefetch limit of a channel, and how many messages it holds. Any thread; `wait` in the event loop."""

    def __init__(self) -> None:
        self._limit = HELD_MAX
        self._held = 0
        self._lock = new_lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def limit(self, count: int) -> None:
        """Change the limit; 0 means none."""
        self._limit = count or HELD_MAX
        self.wake()

    @property
    def free(self) -> int:
        """How many more messages the channel takes."""
        return max(0, self._limit - self._held)

    def take(self) -> bool:
        """Count a message unless the limit is reached."""
        with self._lock:
            if self._held >= self._limit:
                return False
            self._held += 1
            return True

    def give(self) -> None:
        """Count a message no more."""
        with self._lock:
            self._held -= 1
        self.wake()

    def wake(self) -> None:
        """Let waiters look again."""
        for loop, event in tuple(self._waiting):
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the channel takes a message, `wake` is called, or `seconds` have passed."""
        event = asyncio.Event()
        waiter = (asyncio.get_running_loop(), event)
        self._waiting.add(waiter)
        try:
            if not self.free:
                await wait_at_most(event, seconds)
        finally:
            self._waiting.discard(waiter)


class _Open(NamedTuple):
    """The end of a delivery that the broker does not know yet."""

    message: ReceivedMessage
    outcome: str
    #: When the message is redelivered regardless of the outcome.
    until: float


class WorkQueue:
    """A queue whose messages the workers of a group share."""

    def __init__(
        self, link: Link, queue: str, topic: str, room: Room, take: Callable[[Delivery], None]
    ) -> None:
        self._link = link
        self._queue = queue
        self._topic = topic
        self._room = room
        self._take = take
        self._is_stopping = False
        self._open: deque[_Open] = deque()
        self._settling: asyncio.Task[None] | None = None
        self._receiving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to receive messages."""
        self._subscribe()
        self._receiving = asyncio.ensure_future(self._receive())

    async def get(self, wait: float) -> tuple[dict[str, Any], ReceivedMessage] | None:
        """Receive one message; None if none arrives within `wait` seconds."""
        self._subscribe()
        while messages := await self._consumer.receive(
            1, invisible=self._link.options.visibility_timeout, wait=wait
        ):
            if (payload := await self._payload(messages[0])) is not None:
                return payload, messages[0]
        return None

    def stop(self) -> None:
        """Receive no further messages; those received may still be settled. Any thread."""
        self._is_stopping = True
        self._room.wake()

    def settle(self, message: ReceivedMessage, outcome: str) -> None:
        self._open.append(_Open(message, outcome, time.monotonic() + self._link.options.visibility_timeout))
        with suppress(RuntimeError):
            self._link.loop.call_soon_threadsafe(self._begin_to_settle)

    async def close(self) -> None:
        self.stop()
        if self._receiving is not None:
            await self._receiving
        while self._open:
            self._begin_to_settle()
            assert self._settling is not None
            await self._settling
        await self._consumer.close()

    async def _receive(self) -> None:
        failures = 0
        while not self._is_stopping:
            if not (count := min(self._room.free, BATCH_MAX)):
                await self._room.wait()
                continue
            try:
                messages = await self._consumer.receive(
                    count, invisible=self._link.options.visibility_timeout, wait=WAIT_S
                )
                failures = 0
            except errors.RocketMQError as error:
                failures += 1
                log.warning("cannot receive messages of %s: %s", self._queue, error)
                await asyncio.sleep(FAILING.pause_s(failures))
                continue
            spare_until = time.monotonic() + SPARE_S
            for message in messages:
                await self._hand_over(message, spare_until)

    def _subscribe(self) -> None:
        options = self._link.options
        self._consumer = AsyncSimpleConsumer(
            options.group, self._link.config, start_from="earliest", auto_extend=options.extend_for
        )
        self._consumer.subscribe(self._topic)

    async def _payload(self, message: ReceivedMessage) -> dict[str, Any] | None:
        """Return the payload of a message; None if no worker may get it now; it is settled then."""
        try:
            payload = payloads.decode(message)
        except ValueError as error:
            log.error("%r of %s becomes a dead letter: %s", message, self._queue, error)
            self.settle(message, "reject")
            return None
        if payloads.is_step(message, payload):
            await asyncio.to_thread(self._link.send, payloads.encode(payload, self._topic))
            self.settle(message, "ack")
            return None
        return payload

    async def _hand_over(self, message: ReceivedMessage, spare_until: float) -> None:
        if (payload := await self._payload(message)) is None:
            return
        # Another queue of the channel may have used up the limit meanwhile.
        while not (is_taken := self._room.take()):
            left = spare_until - time.monotonic()
            if left <= 0 or self._is_stopping:
                break
            await self._room.wait(left)
        if is_taken and not self._is_stopping:
            self._link.deliver(Delivery(self._take, self._queue, payload, message, self))
            return
        if is_taken:
            self._room.give()
        self.settle(message, "requeue")

    def _begin_to_settle(self) -> None:
        if self._settling is None or self._settling.done():
            self._settling = asyncio.ensure_future(self._settle())

    async def _settle(self) -> None:
        """Notify the broker of all that is settled, in order; retry while it is unreachable."""
        failures = 0
        while self._open:
            first = self._open[0]
            batch = [first]
            if first.outcome == "ack":
                for each in list(self._open)[1:BATCH_MAX]:
                    if each.outcome != "ack":
                        break
                    batch.append(each)
            try:
                await self._end(first.outcome, [each.message for each in batch])
                failures = 0
            except errors.RocketMQError as error:
                if error.retriable and time.monotonic() < first.until:
                    failures += 1
                    await asyncio.sleep(FAILING.pause_s(failures))
                    continue
                log.warning("a message of %s will be redelivered: %s", self._queue, error)
            for _ in batch:
                self._open.popleft()

    async def _end(self, outcome: str, messages: list[ReceivedMessage]) -> None:
        match outcome:
            case "ack":
                await self._consumer.ack(*messages)
            case "requeue":
                await self._consumer.nack(messages[0])
            case _:
                await self._consumer.dead_letter(messages[0])


async def ends(link: Link, topic: str) -> Positions:
    """Return the ends of a topic's queues."""
    async with AsyncPullConsumer(link.options.group, link.config, auto_commit=False) as consumer:
        return {queue: (await consumer.offsets(queue))[1] for queue in await consumer.queues(topic)}


class Broadcast:
    """The messages of an exchange from its opening on, for one reader. Nothing at the broker remembers it."""

    def __init__(
        self, link: Link, queue: str, topic: str, *, tag: str | None, accepts: Callable[[str], bool]
    ) -> None:
        """`tag`: only messages with it; `accepts` checks routing keys."""
        self._link = link
        self._queue = queue
        self._topic = topic
        self._tag = tag or "*"
        self._accepts = accepts
        self._reading: asyncio.Task[None] | None = None

    async def open(self, since: Positions | None = None) -> None:
        """Begin at these positions, or at the ends of the topic's queues."""
        self._consumer = AsyncPullConsumer(self._link.options.group, self._link.config, auto_commit=False)
        queues = await self._consumer.queues(self._topic)
        await self._consumer.assign(queues, self._tag)
        for queue in queues:
            if since and queue in since:
                await self._consumer.seek(queue, since[queue])

    async def start(self, take: Callable[[Delivery], None]) -> None:
        """Begin to hand over messages."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read(take))

    def settle(self, message: ReceivedMessage, outcome: str) -> None:
        """Do nothing: broadcasts are not acknowledged."""

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._consumer.close()

    async def _read(self, take: Callable[[Delivery], None]) -> None:
        failures = 0
        while True:
            while len(self._link.ready) >= READY_MAX:  # noqa: ASYNC110 - another thread takes them
                await asyncio.sleep(0.01)
            try:
                messages = await self._consumer.poll(WAIT_S)
                failures = 0
            except errors.RocketMQError as error:
                failures += 1
                log.warning("cannot read %s: %s", self._topic, error)
                await asyncio.sleep(FAILING.pause_s(failures))
                continue
            for message in messages:
                try:
                    payload: dict[str, Any] = payloads.decode(message)
                except ValueError as error:
                    log.warning("%r of %s is skipped: %s", message, self._topic, error)
                    continue
                info = payload["properties"].get("delivery_info") or {}
                if self._accepts(info.get("routing_key") or ""):
                    self._link.deliver(Delivery(take, self._queue, payload, message, self))
