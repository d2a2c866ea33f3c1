"""Process queue: the messages of one owned queue that were fetched and are not finished.

Owns the order of a queue's messages, its progress, and the size of its buffer. An unfinished message is in one of three
places: pending, with a worker, or being sent back to the broker. Progress is the oldest of them, computed on demand, so
that finishing a message costs nothing.

Invariant: `progress` never passes an unfinished message, and no message of a released queue is started.

The reader and the control plane call from the event loop, workers from their threads or tasks. The work for each
message takes no lock, which workers would contend for: each step is one operation on a `deque` or a `dict`, ordered so
that an observer sees a message in two places rather than in none.
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
    """The bounds of one queue's buffer, at which reading stops."""

    messages: int
    #: The bytes of a pull count until its last message is finished.
    bytes: int
    #: Offsets from the oldest unfinished message to the newest, which bounds the messages a crash repeats.
    span: int


class Held(NamedTuple):
    """The extent of a queue's unfinished messages. Offsets are -1 for an empty queue."""

    progress: int
    messages: int
    bytes: int
    oldest: int
    newest: int


class ProcessQueue:
    """The unfinished messages of one owned queue."""

    def __init__(
        self,
        queue: MessageQueue,
        position: int,
        limits: Limits,
        wake: Callable[[ProcessQueue], None],
        before: ProcessQueue | None = None,
    ) -> None:
        """`wake` is called, from any thread, when a waiting reader may have room, and when the last handler of a
        stopped queue has returned. `before` is the previous process queue of the same queue; a handler of it may still
        be running."""
        self.queue = queue
        #: The topic of all messages, or `None` if messages differ, as in a retry topic.
        self.topic = None if queue.topic.startswith(names.RETRY_PREFIX) else queue.topic
        #: The offset of the next pull.
        self.fetch_at = position
        self.is_paused = False
        #: The end of the lock on the running clock.
        self.locked_until = float("inf")
        #: The time of the last pull with messages, on the wall clock, and of the last handler call, on the monotonic
        #: clock, in seconds.
        self.pulled_at = self.begun_at = 0.0
        #: Failures in a row of the first message; ordered consumption only.
        self.failures = 0
        self._before = before
        self._limits = limits
        #: Reading resumes when no more messages than this are pending.
        self._low = limits.messages // 2
        self._wake = wake
        #: Fetched messages in order that are not begun; in ordered consumption, not finished.
        self._pending: deque[ReceivedMessage] = deque()
        self._at_hand: dict[Worker[ProcessQueue], Batch] = {}
        #: Offsets of messages that are being sent back.
        self._returning: set[int] = set()
        #: The offset after the last message of each pull, and the pull's bytes.
        self._pulls: deque[tuple[int, int]] = deque()
        self._is_stopped = False
        self._is_dropped = False
        self._is_starved = False
        #: True while a worker handles the pending messages in order, or will. The lock guards it.
        self._is_attended = False
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<ProcessQueue {self.queue}: {self.count} unfinished, progress {self.progress}>"

    # ---- the event loop ----------------------------------------------------------------------------------

    @property
    def is_dropped(self) -> bool:
        """True if the queue was given up."""
        return self._is_dropped

    @property
    def is_locked(self) -> bool:
        """True while this member holds the queue's lock."""
        return running() < self.locked_until

    @property
    def is_busy(self) -> bool:
        """True while a handler works on the queue."""
        return self.at_work is not None

    @property
    def at_work(self) -> ProcessQueue | None:
        """This process queue or its newest predecessor that a handler still works on; idle predecessors are dropped."""
        if self._at_hand:
            return self
        if self._before is not None:
            self._before = self._before.at_work
        return self._before

    @property
    def count(self) -> int:
        """The number of unfinished messages."""
        at_hand = 0
        if not self._is_attended:
            at_hand = sum(len(batch) for batch in self._handled())
        return len(self._pending) + at_hand + len(self._returning)

    @property
    def progress(self) -> int:
        """The offset of the oldest unfinished message, or the next offset to read."""
        oldest = self._oldest()
        return self.fetch_at if oldest is None else oldest

    def held(self) -> Held:
        """The extent of the unfinished messages. Called on the event loop."""
        oldest = self._oldest()
        if oldest is None:
            return Held(self.fetch_at, 0, 0, -1, -1)
        return Held(oldest, self.count, self._bytes(oldest), oldest, self.fetch_at - 1)

    def has_room(self) -> bool:
        """Return whether there is room to read on. If not, `wake` is called when there is."""
        # Set before checking, so that messages finished meanwhile wake the reader.
        self._is_starved = True
        self._is_starved = self._is_full()
        return not self._is_starved

    def put(self, messages: Sequence[ReceivedMessage], fetch_at: int, size: int) -> bool:
        """Add fetched messages; return False if the queue was given up meanwhile."""
        if self._is_dropped:
            return False
        self._pending.extend(messages)
        self.fetch_at = fetch_at
        if messages:
            self._pulls.append((fetch_at, size))
            self.pulled_at = time.time()
        return True

    def release(self, message: ReceivedMessage) -> None:
        """Finish a message that the broker has taken back."""
        self._returning.discard(message.queue_offset)
        self._look()

    def overdue(self, worker: Worker[ProcessQueue], began_before: float) -> Batch | None:
        """Return a worker's batch that began before `began_before`. The caller now owns it, to be sent back."""
        batch = self._at_hand.get(worker)
        # The order matters: a worker sets its start time before its batch.
        if batch is None or worker.began_at >= began_before or worker.revoked is batch:
            return None
        self.hold(batch)
        worker.revoked = batch
        return batch

    def stop(self) -> None:
        """Start no more messages; running handlers still finish theirs."""
        self._is_stopped = True

    def drop(self) -> None:
        """Give the queue up: start no more messages, and ignore the results of running handlers."""
        self._is_stopped = self._is_dropped = True
        self._wake(self)

    # ---- workers: in any order ----------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        """True if messages are pending."""
        return bool(self._pending)

    def take(self, worker: Worker[ProcessQueue], count: int) -> Batch | None:
        """Return the next messages for a handler, and finish the worker's previous ones unless they are held. `None`:
        no messages are pending, or none may start; `leave` follows."""
        pending = self._pending
        self.begun_at = worker.began_at = monotonic()
        try:
            # Published before removal. If another worker is faster, these messages come later, which is safe.
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
        """Keep these messages unfinished until `release`, while they are sent back."""
        self._returning.update(message.queue_offset for message in messages)

    def leave(self, worker: Worker[ProcessQueue]) -> None:
        """Note that a worker has no message of this queue any more."""
        self._at_hand.pop(worker, None)
        if self._is_stopped and not self._at_hand:
            self._wake(self)
        self._look_when_low()

    # ---- workers: in order, one at a time ------------------------------------------------------------------

    def attend(self) -> bool:
        """Claim the queue for ordered work; return whether the caller must schedule a worker."""
        with self._lock:
            if self._is_attended or not self._pending or (self._before is not None and self._before.is_busy):
                return False
            self._is_attended = True
            return True

    def front(self, worker: Worker[ProcessQueue], count: int) -> Batch:
        """Return the first pending messages for a handler; `leave` follows. Empty: no messages are pending, or none may
        start, and the queue is no longer attended."""
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
        """The first pending message, as a batch."""
        return (self._pending[0],)

    def advance(self, messages: Batch) -> None:
        """Finish the first pending messages."""
        for _ in messages:
            self._pending.popleft()
        self.failures = 0

    def unattend(self) -> None:
        """Release the claim of `attend`."""
        with self._lock:
            self._is_attended = False

    # ---- pieces ------------------------------------------------------------------------------------------

    def _look_when_low(self) -> None:
        if self._is_starved and len(self._pending) <= self._low:
            self._look()

    def _look(self) -> None:
        """Wake the reader if it waits for room and there is some."""
        if self._is_starved and not self._is_full():
            self._is_starved = False
            self._wake(self)

    def _fill(self, first: ReceivedMessage, count: int) -> Batch:
        """Return a batch of messages with one topic."""
        batch = [first]
        # Mixed topics put a message back; two concurrent puts could swap messages.
        with suppress(IndexError), nullcontext() if self.topic is not None else self._lock:
            while len(batch) < count:
                message = self._pending.popleft()
                if self.topic is None and message.topic != first.topic:
                    self._pending.appendleft(message)
                    break
                batch.append(message)
        return batch

    def _oldest(self) -> int | None:
        # Pending messages first: a message is published with a worker before it leaves them.
        found = []
        with suppress(IndexError):
            found.append(self._pending[0].queue_offset)
        found += [batch[0].queue_offset for batch in self._handled() if batch]
        found += self._returning.copy()
        return min(found, default=None)

    def _handled(self) -> list[Batch]:
        """The workers' current batches that were not revoked."""
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
