"""Fetcher: prefetches with one pull in flight for every queue that has room in its buffer.

Owns the position, the buffer and the pull of each assigned queue. Threads and event loops share this code, which waits
through a `Caller`. Invariant: messages of one queue are returned in order, and `position` is the offset after the last
one returned. For one thread, or one task, at a time.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from rmqpy import errors
from rmqpy._native import Call, Columns, ReceivedMessage
from rmqpy.client.pull.puller import Puller, PullPlan, QueuePull
from rmqpy.client.routes import Routes
from rmqpy.message import Filter, MessageQueue, tags_of
from rmqpy.remoting import pulls
from rmqpy.remoting.backoff import Backoff
from rmqpy.remoting.client import Caller

log = logging.getLogger(__name__)

#: Bytes of buffered replies per queue; a pull in flight may add one reply.
BUFFER_BYTES_MAX: Final = 8 << 20
#: Failures of one queue in a row after which reading gives up: about 30 s of failures, or 5 s of a busy broker.
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
    """One assigned queue and its buffered replies."""

    __slots__ = ("bytes", "chunks", "is_paused", "position")

    def __init__(self, queue: MessageQueue, position: int, wanted: Filter) -> None:
        self.is_paused = False
        super().__init__(queue, position, wanted)

    def has_room(self) -> bool:
        return not self.is_paused and self.bytes < BUFFER_BYTES_MAX

    def move(self, offset: int) -> None:
        super().move(offset)
        # Buffered messages belong to the old position.
        self.position = offset
        self.chunks: deque[_Chunk] = deque()
        self.bytes = 0


class Fetcher:
    """Prefetches the assigned queues."""

    def __init__(self, caller: Caller, routes: Routes, group: str) -> None:
        plan = PullPlan(group, failing=FAILING, busy=BUSY, failures_max=FAILURES_MAX)
        self._puller: Puller[_Prefetch] = Puller(caller, routes, plan)
        self._queues: dict[MessageQueue, _Prefetch] = {}

    def follow(self, doubt: Callable[[str, errors.RocketMQError], None]) -> None:
        """Read the queues that a group assigns: a queue that cannot be read delays no other queue, and is
        retried while it is assigned. `doubt`: see `Puller`."""
        self._puller.plan = self._puller.plan._replace(failures_max=None)
        self._puller.doubt = doubt

    def assign(self, positions: Mapping[MessageQueue, int], filters: Mapping[str, Filter]) -> None:
        """Read these queues from these offsets; queues assigned before keep their position. `filters` by topic."""
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
        """Stop reading all assigned queues but these."""
        for queue in self._queues.keys() - set(queues):
            self._queues.pop(queue).token = 0

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at `offset`."""
        self._pull(queue).move(offset)

    def pause(self, queues: Iterable[MessageQueue], is_paused: bool) -> None:
        """Stop or resume returning messages of these queues."""
        for queue in queues:
            self._pull(queue).is_paused = is_paused

    def position(self, queue: MessageQueue) -> int:
        """Return the offset after the last message returned."""
        return self._pull(queue).position

    def positions(self) -> dict[MessageQueue, int]:
        """Return the positions of all queues."""
        # A copy, because a member of a group is asked for positions from another thread.
        return {queue: pull.position for queue, pull in list(self._queues.items())}

    async def next(self, messages_max: int, timeout_s: float) -> list[ReceivedMessage]:
        """Return buffered messages, or the first to arrive; none after `timeout_s`.

        Raises an error that prevents reading a queue, after transient failures were retried for a while.
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
        """Add buffered messages as columns, whole replies at a time."""
        deadline = time.monotonic() + timeout_s
        while not columns.num_rows and await self._ready(deadline):
            for pull in self._turn():
                while pull.chunks:
                    chunk = pull.chunks.popleft()
                    columns.append(chunk.call, pull.queue, tags=tags_of(pull.wanted), begin=pull.position)
                    self._done(pull, chunk)
        self._read_ahead()

    def close(self) -> None:
        """Drop all pulls in flight."""
        self._queues.clear()
        self._puller.close()

    # ---- buffered messages -----------------------------------------------------------------------------

    def _turn(self) -> list[_Prefetch]:
        """Return queues with buffered messages, longest waiting first."""
        ready = [pull for pull in self._queues.values() if pull.chunks and not pull.is_paused]
        for pull in ready:
            # Move the queue to the end.
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

    # ---- pulls in flight -------------------------------------------------------------------------------

    async def _ready(self, deadline: float) -> bool:
        """Wait until a queue has buffered messages; return False at the deadline."""
        while True:
            self._puller.check()
            for pull, pulled in self._puller.completed():
                self._keep(pull, pulled)
            queues = self._queues.values()
            await self._puller.look_up(queues)
            self._puller.start(queues)
            # Raised here, never while messages are being returned.
            self._puller.check()
            if any(pull.chunks and not pull.is_paused for pull in queues):
                return True
            now = time.monotonic()
            if now >= deadline:
                return False
            await self._puller.wait(queues, deadline - now)

    def _read_ahead(self) -> None:
        # Never suspends, because a cancelled reader must not lose messages.
        self._puller.start(self._queues.values())

    def _keep(self, pull: _Prefetch, pulled: pulls.Pulled) -> None:
        if pulled.found is pulls.Found.MESSAGES:
            pull.chunks.append(_Chunk(pulled, pull.offset))
            pull.bytes += pulled.call.body_size
        elif pulled.found is pulls.Found.MOVED:
            log.warning(
                "offset of %s out of range: wanted=%d min=%d max=%d, resuming at %d",
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
