"""One queue this member owns: what was fetched and is not finished.

Owns the order of a queue's messages, its progress, and how much of it lies here. Invariant: `progress` never
passes a message that is not finished, and nothing of a queue that was given up is begun.

Any thread: the reader and the control plane on the event loop, handlers wherever they run. One lock per queue, never
held while anything else is called.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from rmqpy.message import MessageQueue, ReceivedMessage


class Limits(NamedTuple):
    """What may lie here of one queue before reading stops."""

    messages: int
    bytes: int
    #: Offsets from the oldest unfinished message to the newest: bounds what a crash repeats.
    span: int


class Held(NamedTuple):
    """What lies here of a queue. Offsets are -1 where nothing does."""

    progress: int
    messages: int
    bytes: int
    oldest: int
    newest: int


class Owned:
    """One owned queue."""

    def __init__(
        self, queue: MessageQueue, position: int, limits: Limits, wake: Callable[[Owned], None]
    ) -> None:
        """`wake` is called, from any thread, when a reader that found no room may look again, and when the last
        handler of a queue that was halted has returned."""
        self.queue = queue
        #: Where to read on.
        self.fetch_at = position
        self.is_paused = False
        #: Until then, on the monotonic clock, the broker keeps the queue for this member.
        self.locked_until = float("inf")
        #: On the wall clock, in seconds: when a pull brought something, and when something was finished.
        self.pulled_at = self.finished_at = 0.0
        #: Failures in a row of the message at the front; only ordered consumption counts here.
        self.failures = 0
        self._limits = limits
        self._wake = wake
        self._lock = threading.Lock()
        #: Offset → bytes, in order. Not a plain dict: that one is slow to find its first entry while many go.
        self._unfinished: OrderedDict[int, int] = OrderedDict()
        self._bytes = 0
        self._begun = 0
        #: Fetched, in order, not finished: the line of ordered consumption.
        self._line: deque[ReceivedMessage] = deque()
        #: Somebody works on the line, or is going to.
        self._is_attended = False
        self._is_halted = False
        self._is_dropped = False
        self._is_starved = False

    def __repr__(self) -> str:
        return f"<Owned {self.queue}: {len(self._unfinished)} unfinished, progress {self.progress}>"

    @property
    def is_dropped(self) -> bool:
        """It belongs to somebody else, or will soon."""
        return self._is_dropped

    @property
    def is_locked(self) -> bool:
        """The broker still keeps it for us."""
        return time.monotonic() < self.locked_until

    @property
    def is_busy(self) -> bool:
        """Some handler is at work on it."""
        return self._begun > 0

    @property
    def count(self) -> int:
        """Messages that are not finished."""
        return len(self._unfinished)

    @property
    def progress(self) -> int:
        """The offset of the oldest unfinished message, or where to read on."""
        with self._lock:
            return next(iter(self._unfinished), self.fetch_at)

    def held(self) -> Held:
        """What is not finished, at one moment."""
        with self._lock:
            oldest, newest = next(iter(self._unfinished), -1), next(reversed(self._unfinished), -1)
            progress = self.fetch_at if oldest < 0 else oldest
            return Held(progress, len(self._unfinished), self._bytes, oldest, newest)

    def has_room(self) -> bool:
        """Whether to read on. When not, `wake` is called as soon as there is room."""
        with self._lock:
            self._is_starved = self._is_full()
            return not self._is_starved

    def put(self, messages: Sequence[ReceivedMessage], fetch_at: int, size: int) -> bool:
        """Take what was fetched; False when the queue was given up meanwhile."""
        with self._lock:
            if self._is_dropped:
                return False
            self.fetch_at = fetch_at
            if messages:
                share = size // len(messages)
                for message in messages:
                    self._unfinished[message.queue_offset] = share
                self._bytes += share * len(messages)
                self.pulled_at = time.time()
            return True

    def begin(self) -> bool:
        """A handler is about to be called; False when it must not. Pairs with `end`."""
        with self._lock:
            return self._begin()

    def end(self) -> None:
        """The handler has returned."""
        with self._lock:
            self._begun -= 1
            must_wake = self._is_halted and not self._begun
        if must_wake:
            self._wake(self)

    def finish(self, messages: Iterable[ReceivedMessage]) -> None:
        """These will not be delivered from here again."""
        with self._lock:
            for message in messages:
                self._bytes -= self._unfinished.pop(message.queue_offset, 0)
            self.finished_at = time.time()
            must_wake = self._is_starved and not self._is_full()
            if must_wake:
                self._is_starved = False
        if must_wake:
            self._wake(self)

    def halt(self) -> None:
        """Begin nothing more; what handlers at work finish still counts."""
        with self._lock:
            self._is_halted = True

    def drop(self) -> None:
        """It is given up: begin nothing more, and what handlers at work say is no longer asked for."""
        with self._lock:
            self._is_halted = self._is_dropped = True
        self._wake(self)

    # ---- in order: one at a time ------------------------------------------------------------------------

    def line_up(self, messages: Iterable[ReceivedMessage] = ()) -> bool:
        """Put messages at the end of the line. True: somebody has to attend to it, from now on."""
        with self._lock:
            self._line.extend(messages)
            if self._is_attended or not self._line:
                return False
            self._is_attended = True
            return True

    def begin_front(self, count: int) -> list[ReceivedMessage]:
        """`begin` with the first messages of the line. None: there are none, or they must not be begun, and nobody
        attends to the line any more."""
        with self._lock:
            if not self._line or not self._begin():
                self._is_attended = False
                return []
            return list(islice(self._line, count))

    def first(self) -> list[ReceivedMessage]:
        """The message at the front of the line."""
        with self._lock:
            return list(islice(self._line, 1))

    def advance(self, messages: Sequence[ReceivedMessage]) -> None:
        """`finish` for the first messages of the line."""
        with self._lock:
            for _ in messages:
                self._line.popleft()
            self.failures = 0
        self.finish(messages)

    def leave(self) -> None:
        """Nobody attends to the line for now."""
        with self._lock:
            self._is_attended = False

    def _begin(self) -> bool:
        if self._is_halted or not self.is_locked:
            return False
        self._begun += 1
        return True

    def _is_full(self) -> bool:
        oldest = next(iter(self._unfinished), self.fetch_at)
        return (
            len(self._unfinished) >= self._limits.messages
            or self._bytes >= self._limits.bytes
            or self.fetch_at - oldest >= self._limits.span
        )
