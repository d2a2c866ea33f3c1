"""Process queue: the messages of one owned queue that were fetched and are not finished.

Owns the order of a queue's messages, its progress, and how much of it lies here. A message that is not finished is in
one of three places: it is pending, a worker has it at hand, or it is on its way back to the broker. Progress is the
oldest of them, looked for on demand, so that finishing a message costs nothing.

Invariant: `progress` never passes a message that is not finished, and nothing of a queue that was given up is begun.

The reader and the control plane call from the event loop, workers from wherever they run. What happens for every
message takes no lock, which workers would hand to each other: each step is one operation on a `deque` or a `dict`, and
their order is such that an observer sees a message in two places rather than in none.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from time import monotonic
from typing import NamedTuple, TypeAlias

from rmqpy.client.push.worker_pool import Worker
from rmqpy.clock import running
from rmqpy.message import MessageQueue, ReceivedMessage
from rmqpy.protocol import names

Batch: TypeAlias = Sequence[ReceivedMessage]


class Limits(NamedTuple):
    """Bounds of what may lie here of one queue before reading stops."""

    messages: int
    #: A pull's bytes count until its last message is finished.
    bytes: int
    #: Offsets from the oldest unfinished message to the newest: bounds what a crash repeats.
    span: int


class Held(NamedTuple):
    """Extent of what lies here of a queue. Offsets are -1 where nothing does."""

    progress: int
    messages: int
    bytes: int
    oldest: int
    newest: int


class ProcessQueue:
    """Unfinished messages of one owned queue."""

    def __init__(
        self,
        queue: MessageQueue,
        position: int,
        limits: Limits,
        wake: Callable[[ProcessQueue], None],
        before: ProcessQueue | None = None,
    ) -> None:
        """`wake` is called, from any thread, when a reader that found no room may look again, and when the last
        handler of a queue that was stopped has returned. `before`: of the same queue, dropped a moment ago; a handler
        may still be at work on it."""
        self.queue = queue
        #: Of all messages; `None` where each says its own, as messages that come again do.
        self.topic = None if queue.topic.startswith(names.RETRY_PREFIX) else queue.topic
        #: The offset to read on at.
        self.fetch_at = position
        self.is_paused = False
        #: Until then, on the running clock, the broker keeps the queue for this member.
        self.locked_until = float("inf")
        #: In seconds: on the wall clock, when a pull brought something; on the monotonic clock, when something was
        #: last given to a handler.
        self.pulled_at = self.begun_at = 0.0
        #: Failures in a row of the message at the front; only ordered consumption counts here.
        self.failures = 0
        self._before = before
        self._limits = limits
        #: Reading goes on when no more messages than that are pending.
        self._low = limits.messages // 2
        self._wake = wake
        #: Fetched, in order, not begun; in ordered consumption, not finished.
        self._pending: deque[ReceivedMessage] = deque()
        self._at_hand: dict[Worker[ProcessQueue], Batch] = {}
        #: Offsets of messages on their way back.
        self._returning: set[int] = set()
        #: Of each pull: the offset after its last message, and its bytes.
        self._pulls: deque[tuple[int, int]] = deque()
        self._is_stopped = False
        self._is_dropped = False
        self._is_starved = False
        #: A worker handles the pending messages in order, or is going to. The lock is for this.
        self._is_attended = False
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<ProcessQueue {self.queue}: {self.count} unfinished, progress {self.progress}>"

    # ---- the event loop ----------------------------------------------------------------------------------

    @property
    def is_dropped(self) -> bool:
        """It belongs to another member, or will soon."""
        return self._is_dropped

    @property
    def is_locked(self) -> bool:
        """The broker still keeps it for us."""
        return running() < self.locked_until

    @property
    def is_busy(self) -> bool:
        """A handler is at work on it."""
        return self.at_work is not None

    @property
    def at_work(self) -> ProcessQueue | None:
        """This one while it is at hand, else the one before it that still is; the others before it are let go."""
        if self._at_hand:
            return self
        if self._before is not None:
            self._before = self._before.at_work
        return self._before

    @property
    def count(self) -> int:
        """Messages that are not finished."""
        at_hand = 0
        if not self._is_attended:
            at_hand = sum(len(batch) for batch in self._handled())
        return len(self._pending) + at_hand + len(self._returning)

    @property
    def progress(self) -> int:
        """The offset of the oldest unfinished message, or where to read on."""
        oldest = self._oldest()
        return self.fetch_at if oldest is None else oldest

    def held(self) -> Held:
        """The extent of what is not finished. From the event loop."""
        oldest = self._oldest()
        if oldest is None:
            return Held(self.fetch_at, 0, 0, -1, -1)
        return Held(oldest, self.count, self._bytes(oldest), oldest, self.fetch_at - 1)

    def has_room(self) -> bool:
        """True when to read on. When not, `wake` is called as soon as there is room."""
        # Before looking: what is finished meanwhile wakes us.
        self._is_starved = True
        self._is_starved = self._is_full()
        return not self._is_starved

    def put(self, messages: Sequence[ReceivedMessage], fetch_at: int, size: int) -> bool:
        """Take what was fetched; False when the queue was given up meanwhile."""
        if self._is_dropped:
            return False
        self._pending.extend(messages)
        self.fetch_at = fetch_at
        if messages:
            self._pulls.append((fetch_at, size))
            self.pulled_at = time.time()
        return True

    def release(self, message: ReceivedMessage) -> None:
        """A message that was on its way back is safe there."""
        self._returning.discard(message.queue_offset)
        self._look()

    def overdue(self, worker: Worker[ProcessQueue], began_before: float) -> Batch | None:
        """The batch this worker has been at for longer: it is the caller's now, and on its way back."""
        batch = self._at_hand.get(worker)
        # In this order: a worker says when it begins before it says with what.
        if batch is None or worker.began_at >= began_before or worker.revoked is batch:
            return None
        self.hold(batch)
        worker.revoked = batch
        return batch

    def stop(self) -> None:
        """Begin nothing more; what handlers at work finish still counts."""
        self._is_stopped = True

    def drop(self) -> None:
        """It is given up: begin nothing more, and what handlers at work say is no longer asked for."""
        self._is_stopped = self._is_dropped = True
        self._wake(self)

    # ---- workers: in any order ----------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        """Messages wait here."""
        return bool(self._pending)

    def take(self, worker: Worker[ProcessQueue], count: int) -> Batch | None:
        """The next messages, for a handler to be called with. What this worker took before is finished, unless it
        is held. `None`: there are none, or they must not be begun; `leave` then."""
        pending = self._pending
        self.begun_at = worker.began_at = monotonic()
        try:
            # First at hand, then no longer pending. Should another worker be faster, ours come after it: that is safe.
            batch: Batch = (pending[0],)
            self._at_hand[worker] = batch
            if self._is_stopped:
                return None
            message = pending.popleft()
        except IndexError:
            return None
        if message is not batch[0]:
            self._at_hand[worker] = batch = (message,)
        if count > 1:
            self._at_hand[worker] = batch = self._fill(message, count)
        self._look_when_low()
        return batch

    def hold(self, messages: Iterable[ReceivedMessage]) -> None:
        """These are on their way back, and not finished before `release`."""
        self._returning.update(message.queue_offset for message in messages)

    def leave(self, worker: Worker[ProcessQueue]) -> None:
        """This worker has nothing of it at hand any more."""
        self._at_hand.pop(worker, None)
        if self._is_stopped and not self._at_hand:
            self._wake(self)
        self._look_when_low()

    # ---- workers: in order, one at a time ------------------------------------------------------------------

    def attend(self) -> bool:
        """True: a worker has to handle the pending messages in order, from now on."""
        with self._lock:
            if self._is_attended or not self._pending or (self._before is not None and self._before.is_busy):
                return False
            self._is_attended = True
            return True

    def front(self, worker: Worker[ProcessQueue], count: int) -> Batch:
        """The first pending messages, for a handler to be called with; `leave` after it has. None: there are none, or
        they must not be begun, and the queue is not attended any more."""
        self.begun_at = worker.began_at = monotonic()
        with self._lock:
            batch = [self._pending[at] for at in range(min(count, len(self._pending)))]
            self._at_hand[worker] = batch
            if batch and not self._is_stopped and self.is_locked:
                return batch
            self._is_attended = False
        self.leave(worker)
        return ()

    def first(self) -> Batch:
        """The first pending message."""
        return (self._pending[0],)

    def advance(self, messages: Batch) -> None:
        """The first pending messages are finished."""
        for _ in messages:
            self._pending.popleft()
        self.failures = 0

    def unattend(self) -> None:
        """The queue is not attended for now."""
        with self._lock:
            self._is_attended = False

    # ---- pieces ------------------------------------------------------------------------------------------

    def _look_when_low(self) -> None:
        if self._is_starved and len(self._pending) <= self._low:
            self._look()

    def _look(self) -> None:
        """Wake the reader, if it waits for room and there is some."""
        if self._is_starved and not self._is_full():
            self._is_starved = False
            self._wake(self)

    def _fill(self, first: ReceivedMessage, count: int) -> Batch:
        """A batch of one topic."""
        batch = [first]
        # Only where topics mix is one put back; two at once could be put back in the wrong order.
        with suppress(IndexError), nullcontext() if self.topic is not None else self._lock:
            while len(batch) < count:
                message = self._pending.popleft()
                if self.topic is None and message.topic != first.topic:
                    self._pending.appendleft(message)
                    break
                batch.append(message)
        return batch

    def _oldest(self) -> int | None:
        # The pending ones first: what leaves them is at hand by then.
        found = []
        with suppress(IndexError):
            found.append(self._pending[0].queue_offset)
        found += [batch[0].queue_offset for batch in self._handled() if batch]
        found += self._returning.copy()
        return min(found, default=None)

    def _handled(self) -> list[Batch]:
        """The batches workers have at hand, and may conclude."""
        return [batch for worker, batch in self._at_hand.copy().items() if worker.revoked is not batch]

    def _bytes(self, progress: int) -> int:
        while self._pulls and self._pulls[0][0] <= progress:
            self._pulls.popleft()
        return sum(size for _, size in self._pulls.copy())

    def _is_full(self) -> bool:
        progress = self.progress
        return (
            self.count >= self._limits.messages
            or self.fetch_at - progress >= self._limits.span
            or self._bytes(progress) >= self._limits.bytes
        )
