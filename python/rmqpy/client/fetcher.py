"""Prefetch: one pull under way for every queue that has room in its buffer.

Owns, for each assigned queue, where the reader is, what lies ready and what is under way. Written once for threads
and event loops, over a `Caller`. Invariant: messages of one queue are handed out in order, and `position` is the
offset after the last one handed out. For one thread, or one task, at a time.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from rmqpy import errors
from rmqpy._native import Call, Columns, ReceivedMessage
from rmqpy.client.routes import Routes
from rmqpy.message import MessageQueue
from rmqpy.remoting import pulls
from rmqpy.remoting.client import Caller

log = logging.getLogger(__name__)

#: Bytes of replies that lie ready for one queue; a pull already under way may add one reply.
BUFFER_BYTES_MAX: Final = 8 << 20
#: Failures of one queue in a row after which reading gives up.
FAILURES_MAX: Final = 30
PAUSE_S: Final = 1.0
PAUSE_WHEN_BUSY_S: Final = 0.1


class _Chunk:
    """The reply of one pull, from `begin` on."""

    __slots__ = ("begin", "call", "messages", "next_offset")

    def __init__(self, pulled: pulls.Pulled, begin: int) -> None:
        self.call: Call = pulled.call
        self.begin = begin
        self.next_offset = pulled.next_offset
        self.messages: list[ReceivedMessage] | None = None


class _Lane:
    """One assigned queue."""

    __slots__ = (
        "address",
        "bytes",
        "chunks",
        "failures",
        "fetch_at",
        "is_paused",
        "not_before",
        "position",
        "queue",
        "suggested",
        "tags",
        "token",
    )

    def __init__(self, queue: MessageQueue, position: int, tags: str) -> None:
        self.queue = queue
        self.tags = tags
        self.suggested = 0
        self.address = ""
        self.is_paused = False
        self.failures = 0
        self.move(position)

    @property
    def is_due(self) -> bool:
        """A pull should be under way, and none is."""
        return not (self.token or self.is_paused or self.bytes >= BUFFER_BYTES_MAX)

    def move(self, position: int) -> None:
        """Go on from there; what lies ready or is under way is for another place."""
        self.position = self.fetch_at = position
        self.chunks: deque[_Chunk] = deque()
        self.bytes = 0
        self.not_before = 0.0
        #: The pull under way; 0: none.
        self.token = 0


class Fetcher:
    """Reads the assigned queues ahead of its caller."""

    def __init__(self, caller: Caller, routes: Routes, group: str) -> None:
        self._caller = caller
        self._routes = routes
        self._group = group
        self._inbox = caller.inbox()
        self._lanes: dict[MessageQueue, _Lane] = {}
        self._flying: dict[int, _Lane] = {}
        self._token = 0
        #: What the next call of the reader raises: never in the middle of handing out.
        self._broken: errors.RocketMQError | None = None

    def assign(self, positions: Mapping[MessageQueue, int], tags: Mapping[str, str]) -> None:
        """Read these queues from these offsets; queues assigned before keep their place. `tags` by topic."""
        lanes = {}
        for queue, position in positions.items():
            wanted = tags.get(queue.topic, "*")
            lane = lanes[queue] = self._lanes.get(queue) or _Lane(queue, position, wanted)
            if lane.tags != wanted:
                lane.tags = wanted
                lane.move(lane.position)
        self._lanes = lanes

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Hand out the message at `offset` next."""
        self._lane(queue).move(offset)

    def pause(self, queues: Iterable[MessageQueue], is_paused: bool) -> None:
        """Hand nothing out of these queues, or go on."""
        for queue in queues:
            self._lane(queue).is_paused = is_paused

    def position(self, queue: MessageQueue) -> int:
        """The offset after the last message handed out."""
        return self._lane(queue).position

    def positions(self) -> dict[MessageQueue, int]:
        """Of all queues."""
        # A copy: a member of a group is asked for them from another thread.
        return {queue: lane.position for queue, lane in list(self._lanes.items())}

    async def next(self, messages_max: int, timeout_s: float) -> list[ReceivedMessage]:
        """Messages that lie ready, or the first to arrive; none when `timeout_s` passes first.

        Raises what keeps a queue from being read on, after transient failures were retried for a while.
        """
        deadline = time.monotonic() + timeout_s
        taken: list[ReceivedMessage] = []
        while not taken and await self._ready(deadline):
            for lane in self._turn():
                while lane.chunks and len(taken) < messages_max:
                    taken += self._take(lane, messages_max - len(taken))
        self._take_off()
        return taken

    async def next_columns(self, columns: Columns, timeout_s: float) -> None:
        """The same as columns, whole replies at a time."""
        deadline = time.monotonic() + timeout_s
        while not columns.num_rows and await self._ready(deadline):
            for lane in self._turn():
                while lane.chunks:
                    chunk = lane.chunks.popleft()
                    columns.append(chunk.call, lane.queue, tags=lane.tags, begin=lane.position)
                    self._done(lane, chunk)
        self._take_off()

    def close(self) -> None:
        """Forget everything that is under way."""
        self._lanes.clear()
        self._flying.clear()
        self._inbox.close()

    # ---- what lies ready -------------------------------------------------------------------------------

    def _turn(self) -> list[_Lane]:
        """OwnedQueues with something to hand out, those that waited longest first."""
        ready = [lane for lane in self._lanes.values() if lane.chunks and not lane.is_paused]
        for lane in ready:
            # Behind the others.
            self._lanes[lane.queue] = self._lanes.pop(lane.queue)
        return ready

    def _take(self, lane: _Lane, count: int) -> list[ReceivedMessage]:
        chunk = lane.chunks[0]
        if chunk.messages is None:
            chunk.messages = chunk.call.messages(lane.queue, tags=lane.tags, begin=chunk.begin)
        taken, chunk.messages = chunk.messages[:count], chunk.messages[count:]
        if taken:
            lane.position = taken[-1].queue_offset + 1
        if not chunk.messages:
            lane.chunks.popleft()
            self._done(lane, chunk)
        return taken

    def _done(self, lane: _Lane, chunk: _Chunk) -> None:
        lane.bytes -= chunk.call.body_size
        lane.position = chunk.next_offset

    # ---- what is under way -----------------------------------------------------------------------------

    async def _ready(self, deadline: float) -> bool:
        """Until some queue has something to hand out; False when time is up first."""
        while True:
            if self._inbox.completions.is_closed():
                raise errors.ClosedError("the consumer was closed")
            await self._look_up()
            self._take_off()
            self._land()
            if self._broken is not None:
                broken, self._broken = self._broken, None
                raise broken
            if any(lane.chunks and not lane.is_paused for lane in self._lanes.values()):
                return True
            now = time.monotonic()
            if now >= deadline:
                return False
            wake_at = min((lane.not_before for lane in self._lanes.values() if lane.is_due), default=deadline)
            await self._inbox.wait(max(0.001, min(deadline, wake_at) - now))

    async def _look_up(self) -> None:
        """Learn the routes that are not known yet."""
        for topic in {queue.topic for queue in self._lanes}:
            if self._routes.cached(topic, self._caller) is None:
                await self._routes.subscribe(topic, self._caller)

    def _take_off(self) -> None:
        """Start a pull for every queue that has room and none under way. Never suspends: a reader that is cancelled
        must not lose what it has taken."""
        now = time.monotonic()
        for lane in self._lanes.values():
            route = self._routes.cached(lane.queue.topic, self._caller)
            if not lane.is_due or lane.not_before > now or route is None:
                continue
            try:
                lane.address = route.reader(lane.queue.broker, lane.suggested)
            except errors.RocketMQError as error:
                self._failed(lane, error)
            else:
                self._pull(lane)

    def _pull(self, lane: _Lane) -> None:
        ext = pulls.request(
            self._group,
            lane.queue,
            lane.fetch_at,
            tags=lane.tags,
            messages_max=pulls.MESSAGES_MAX,
            suspend_s=pulls.SUSPEND_S,
        )
        self._token += 1
        lane.token = self._token
        self._flying[self._token] = lane
        self._caller.client.call(
            lane.address,
            pulls.PULL,
            ext,
            timeout_ms=round((pulls.SUSPEND_S + pulls.REPLY_S) * 1000),
            completions=self._inbox.completions,
            token=self._token,
        )

    def _land(self) -> None:
        for token, call in self._inbox.take():
            lane = self._flying.pop(token, None)
            if lane is None or lane.token != token or self._lanes.get(lane.queue) is not lane:
                continue  # For a place that is not read any more.
            lane.token = 0
            try:
                pulled = pulls.read(call, lane.queue, lane.address)
            except errors.RocketMQError as error:
                self._failed(lane, error)
                continue
            lane.failures = 0
            self._settle(lane, pulled)

    def _settle(self, lane: _Lane, pulled: pulls.Pulled) -> None:
        lane.suggested = pulled.suggested
        if pulled.found is pulls.Found.MESSAGES:
            lane.chunks.append(_Chunk(pulled, lane.fetch_at))
            lane.bytes += pulled.call.body_size
        elif pulled.found is pulls.Found.MOVED:
            log.warning(
                "%s has no offset %d, it holds %d to %d: going on at %d",
                lane.queue,
                lane.fetch_at,
                pulled.begin,
                pulled.end,
                pulled.next_offset,
            )
        lane.fetch_at = pulled.next_offset
        if not lane.chunks:
            lane.position = lane.fetch_at

    def _failed(self, lane: _Lane, error: errors.RocketMQError) -> None:
        lane.failures += 1
        pause = PAUSE_WHEN_BUSY_S if isinstance(error, errors.FlowControl) else PAUSE_S
        lane.not_before = time.monotonic() + pause
        if not error.retriable or lane.failures >= FAILURES_MAX:
            lane.failures = 0
            self._broken = error
            return
        if isinstance(error, errors.ConnectError | errors.RequestTimeout):
            self._routes.doubt(lane.queue.topic)
        log.warning("reading %s failed and is tried again: %s", lane.queue, error)

    def _lane(self, queue: MessageQueue) -> _Lane:
        lane = self._lanes.get(queue)
        if lane is None:
            raise ValueError(f"{queue} is not assigned to this consumer")
        return lane
