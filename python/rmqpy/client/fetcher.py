"""Prefetch: one pull under way for every queue that has room in its buffer.

Owns, for each assigned queue, where the reader is, what lies ready and what is under way. Written once for threads
and event loops, over a `Caller`. Invariant: messages of one queue are handed out in order, and `position` is the
offset after the last one handed out. For one thread, or one task, at a time.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from rmqpy import errors
from rmqpy._native import Call, Columns, ReceivedMessage
from rmqpy.client.puller import Puller, PullPlan, QueuePull
from rmqpy.client.routes import Routes
from rmqpy.message import Filter, MessageQueue, tags_of
from rmqpy.remoting import pulls
from rmqpy.remoting.backoff import Backoff
from rmqpy.remoting.client import Caller

log = logging.getLogger(__name__)

#: Bytes of replies that lie ready for one queue; a pull already under way may add one reply.
BUFFER_BYTES_MAX: Final = 8 << 20
#: Failures of one queue in a row after which reading gives up: half a minute of them, five seconds of a busy broker.
FAILURES_MAX: Final = 8
FAILING: Final = Backoff(0.5, 5.0)
BUSY: Final = Backoff(0.1, 1.0)


class _Chunk:
    """The reply of one pull, from `begin` on."""

    __slots__ = ("begin", "call", "messages", "next_offset")

    def __init__(self, pulled: pulls.Pulled, begin: int) -> None:
        self.call: Call = pulled.call
        self.begin = begin
        self.next_offset = pulled.next_offset
        self.messages: list[ReceivedMessage] | None = None


class _Prefetch(QueuePull):
    """One assigned queue, and the replies that lie ready."""

    __slots__ = ("bytes", "chunks", "is_paused", "position")

    def __init__(self, queue: MessageQueue, position: int, wanted: Filter) -> None:
        self.is_paused = False
        super().__init__(queue, position, wanted)

    def has_room(self) -> bool:
        return not self.is_paused and self.bytes < BUFFER_BYTES_MAX

    def move(self, offset: int) -> None:
        super().move(offset)
        # What lies ready is for another place.
        self.position = offset
        self.chunks: deque[_Chunk] = deque()
        self.bytes = 0


class Fetcher:
    """Reads the assigned queues ahead of its caller."""

    def __init__(self, caller: Caller, routes: Routes, group: str) -> None:
        plan = PullPlan(group, failing=FAILING, busy=BUSY, failures_max=FAILURES_MAX)
        self._puller: Puller[_Prefetch] = Puller(caller, routes, plan)
        self._queues: dict[MessageQueue, _Prefetch] = {}

    def follow(self, doubt: Callable[[str, errors.RocketMQError], None]) -> None:
        """The queues are those a group leaves to this reader: one that cannot be read keeps it from no other, and is
        tried for as long as it is assigned. `doubt` is called as the puller's."""
        self._puller.plan = self._puller.plan._replace(failures_max=None)
        self._puller.doubt = doubt

    def assign(self, positions: Mapping[MessageQueue, int], filters: Mapping[str, Filter]) -> None:
        """Read these queues from these offsets; queues assigned before keep their place. `filters` by topic."""
        queues = {}
        for queue, position in positions.items():
            wanted = filters.get(queue.topic, "*")
            pull = queues[queue] = self._queues.get(queue) or _Prefetch(queue, position, wanted)
            if pull.wanted != wanted:
                pull.wanted = wanted
                pull.move(pull.position)
        self.keep(queues.keys())
        self._queues = queues

    def keep(self, queues: Collection[MessageQueue]) -> None:
        """Read none but these of the assigned queues."""
        for queue in self._queues.keys() - set(queues):
            self._queues.pop(queue).token = 0

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Hand out the message at `offset` next."""
        self._pull(queue).move(offset)

    def pause(self, queues: Iterable[MessageQueue], is_paused: bool) -> None:
        """Hand nothing out of these queues, or go on."""
        for queue in queues:
            self._pull(queue).is_paused = is_paused

    def position(self, queue: MessageQueue) -> int:
        """The offset after the last message handed out."""
        return self._pull(queue).position

    def positions(self) -> dict[MessageQueue, int]:
        """Of all queues."""
        # A copy: a member of a group is asked for them from another thread.
        return {queue: pull.position for queue, pull in list(self._queues.items())}

    async def next(self, messages_max: int, timeout_s: float) -> list[ReceivedMessage]:
        """Messages that lie ready, or the first to arrive; none when `timeout_s` passes first.

        Raises what keeps a queue from being read on, after transient failures were retried for a while.
        """
        deadline = time.monotonic() + timeout_s
        taken: list[ReceivedMessage] = []
        while not taken and await self._ready(deadline):
            for pull in self._turn():
                while pull.chunks and len(taken) < messages_max:
                    taken += self._take(pull, messages_max - len(taken))
        self._read_ahead()
        return taken

    async def next_columns(self, columns: Columns, timeout_s: float) -> None:
        """The same as columns, whole replies at a time."""
        deadline = time.monotonic() + timeout_s
        while not columns.num_rows and await self._ready(deadline):
            for pull in self._turn():
                while pull.chunks:
                    chunk = pull.chunks.popleft()
                    columns.append(chunk.call, pull.queue, tags=tags_of(pull.wanted), begin=pull.position)
                    self._done(pull, chunk)
        self._read_ahead()

    def close(self) -> None:
        """Forget everything that is under way."""
        self._queues.clear()
        self._puller.close()

    # ---- what lies ready -------------------------------------------------------------------------------

    def _turn(self) -> list[_Prefetch]:
        """Queues with something to hand out, those that waited longest first."""
        ready = [pull for pull in self._queues.values() if pull.chunks and not pull.is_paused]
        for pull in ready:
            # Behind the others.
            self._queues[pull.queue] = self._queues.pop(pull.queue)
        return ready

    def _take(self, pull: _Prefetch, count: int) -> list[ReceivedMessage]:
        chunk = pull.chunks[0]
        if chunk.messages is None:
            chunk.messages = chunk.call.messages(
                pull.queue, tags=tags_of(pull.wanted), begin=chunk.begin, namespace=self._puller.namespace
            )
        taken, chunk.messages = chunk.messages[:count], chunk.messages[count:]
        if taken:
            pull.position = taken[-1].queue_offset + 1
        if not chunk.messages:
            pull.chunks.popleft()
            self._done(pull, chunk)
        return taken

    def _done(self, pull: _Prefetch, chunk: _Chunk) -> None:
        pull.bytes -= chunk.call.body_size
        pull.position = chunk.next_offset

    # ---- what is under way -----------------------------------------------------------------------------

    async def _ready(self, deadline: float) -> bool:
        """Until some queue has something to hand out; False when time is up first."""
        while True:
            self._puller.check()
            for pull, pulled in self._puller.completed():
                self._keep(pull, pulled)
            queues = self._queues.values()
            await self._puller.look_up(queues)
            self._puller.start(queues)
            # Raised here, never in the middle of handing out.
            self._puller.check()
            if any(pull.chunks and not pull.is_paused for pull in queues):
                return True
            now = time.monotonic()
            if now >= deadline:
                return False
            await self._puller.wait(queues, deadline - now)

    def _read_ahead(self) -> None:
        # Never suspends: a reader that is cancelled must not lose what it has taken.
        self._puller.start(self._queues.values())

    def _keep(self, pull: _Prefetch, pulled: pulls.Pulled) -> None:
        if pulled.found is pulls.Found.MESSAGES:
            pull.chunks.append(_Chunk(pulled, pull.offset))
            pull.bytes += pulled.call.body_size
        elif pulled.found is pulls.Found.MOVED:
            log.warning(
                "%s has no offset %d, it holds %d to %d: going on at %d",
                pull.queue,
                pull.offset,
                pulled.begin,
                pulled.end,
                pulled.next_offset,
            )
        pull.advance(pulled)
        if not pull.chunks:
            pull.position = pull.offset

    def _pull(self, queue: MessageQueue) -> _Prefetch:
        pull = self._queues.get(queue)
        if pull is None:
            raise ValueError(f"{queue} is not assigned to this consumer")
        return pull
