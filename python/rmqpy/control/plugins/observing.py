"""Observers: plug-ins that get batches of new messages, and skip rather than wait.

Invariant: memory is bounded by a few batches, whatever the plug-in does; every message after the start is passed to it
or counted as skipped. Threads: two for each observer. One follows the end of the log, and skips when it is too far
behind; the other calls the plug-in.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from rmqpy._native import Offsets, ReceivedMessage, Store
from rmqpy.control.plugins.guard import Guard
from rmqpy.control.plugins.threads import STOP_SECONDS, PluginThread
from rmqpy.plugins import Commit, Observer

log = logging.getLogger(__name__)

#: The time between looks at the end of the log.
LOOK_SECONDS: Final = 0.1
#: The most messages, and bytes of the log, of a batch.
BATCH: Final = 256
BATCH_BYTES: Final = 1 << 20
#: The most batches that wait for the plug-in.
BATCHES_MAX: Final = 4
#: The interval of the looks at the progress of groups, and the most offsets of a call.
PROGRESS_SECONDS: Final = 1.0
COMMITS_MAX: Final = 1_000
#: The minimum time between log lines about skipped messages.
LOG_SECONDS: Final = 10.0


class ObserverPart:
    """One observer, with its threads."""

    def __init__(self, guard: Guard, plugin: Observer, store: Store, offsets: Offsets) -> None:
        self._guard, self._plugin, self._store, self._offsets = guard, plugin, store, offsets
        self._topics = None if plugin.topics is None else list(plugin.topics)
        self._position = 0
        self._batches: queue.Queue[Sequence[ReceivedMessage]] = queue.Queue(BATCHES_MAX)
        self._observes_progress = type(plugin).consumed is not Observer.consumed
        self._progress: dict[str, dict[int, int]] = {}
        self._commits = -1
        self._looked = time.monotonic()
        self._skipped = 0
        self._logged: float | None = None
        self._reader = PluginThread(guard.name, "read", self._read)
        self._caller = PluginThread(guard.name, "observe", self._observe)

    def behind_bytes(self) -> int:
        """Return the bytes of the visible log that were not read for the plug-in."""
        return max(0, self._store.statistics()["visible"] - self._position)

    def prepare(self) -> None:
        """Begin at the end of the log."""
        self._position = self._store.statistics()["visible"]
        if self._observes_progress:
            self._commits, self._progress = self._offsets.snapshot()

    def start(self) -> None:
        """Start the threads."""
        self._reader.start()
        self._caller.start()

    async def stop(self) -> None:
        """End the threads; batches that wait are dropped."""
        until = time.monotonic() + STOP_SECONDS
        await self._reader.stop()
        await self._caller.stop(until)

    def _read(self, stop: threading.Event) -> None:
        while not stop.is_set():
            if not self._read_next(stop):
                stop.wait(LOOK_SECONDS)
        self._log_skipped(at_least=0.0)

    def _read_next(self, stop: threading.Event) -> bool:
        """Read or skip a part of the log; return whether another may follow immediately."""
        self._log_skipped()
        if (excess := self.behind_bytes() - self._plugin.behind_bytes) > 0:
            count, self._position = self._store.pass_over(
                self._position, bytes_max=excess, topics=self._topics
            )
            self._skip(count)
            return True
        if self._batches.full():
            return False
        page = self._store.follow(
            self._position,
            broker=self._guard.context.broker,
            count=BATCH,
            bytes_max=BATCH_BYTES,
            topics=self._topics,
        )
        self._position = page.next
        if page.messages:
            self._batches.put_nowait(page.messages)
        return page.next > page.begin

    def _skip(self, count: int) -> None:
        self._skipped += count
        self._guard.count(skipped=count)

    def _log_skipped(self, at_least: float = LOG_SECONDS) -> None:
        now = time.monotonic()
        if not self._skipped or (self._logged is not None and now - self._logged < at_least):
            return
        log.warning("plug-in %s cannot keep up: skipped %d messages", self._guard.name, self._skipped)
        self._skipped, self._logged = 0, now

    def _observe(self, stop: threading.Event) -> None:
        if not self._guard.open(stop):
            return
        while not stop.is_set():
            try:
                batch = self._batches.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                pass
            else:
                self._pass_on(batch)
            if self._observes_progress and time.monotonic() - self._looked >= PROGRESS_SECONDS:
                self._looked = time.monotonic()
                self._pass_progress()
        self._guard.close()

    def _pass_on(self, batch: Sequence[ReceivedMessage]) -> None:
        if self._guard.breaker.admits() and self._guard.call("sent", lambda: self._plugin.sent(batch)):
            self._guard.count(messages=len(batch))
        else:
            self._guard.count(skipped=len(batch))

    def _pass_progress(self) -> None:
        if self._offsets.commits == self._commits or self._guard.breaker.state == "open":
            return
        before = self._progress
        self._commits, self._progress = self._offsets.snapshot()
        changed = list(_changes(before, self._progress))
        for begin in range(0, len(changed), COMMITS_MAX):
            part = changed[begin : begin + COMMITS_MAX]
            if self._guard.breaker.admits():
                self._guard.call("consumed", partial(self._plugin.consumed, part))


def _changes(before: dict[str, dict[int, int]], after: dict[str, dict[int, int]]) -> Iterator[Commit]:
    """Yield the offsets that changed between two tables by `topic@group`."""
    for key, offsets in after.items():
        known = before.get(key, {})
        if known == offsets:
            continue
        topic, _, group = key.partition("@")
        for queue_id, offset in offsets.items():
            if known.get(queue_id) != offset:
                yield Commit(group, topic, queue_id, offset)
