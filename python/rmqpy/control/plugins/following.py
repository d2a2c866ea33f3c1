"""Followers: plug-ins that get every message of the log in order, at least once.

Invariant: the saved position is never beyond a message that the plug-in has not kept. Threads: one for each follower,
which reads the log, calls the plug-in and writes the position.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Final

from rmqpy._native import Store
from rmqpy.control.plugins.guard import Guard
from rmqpy.control.plugins.position_file import PositionFile
from rmqpy.control.plugins.threads import PluginThread
from rmqpy.plugins import LogFollower

log = logging.getLogger(__name__)

#: The time between looks at the end of the log.
LOOK_SECONDS: Final = 0.1
#: The most bytes of the log in a batch.
PAGE_BYTES: Final = 4 << 20
#: The minimum time between saves of the position: after a kill a plug-in gets so much again.
SAVE_SECONDS: Final = 0.5


class Follower:
    """One follower, with its thread."""

    def __init__(self, guard: Guard, plugin: LogFollower, store: Store, folder: Path) -> None:
        self._guard, self._plugin, self._store = guard, plugin, store
        self._topics = None if plugin.topics is None else list(plugin.topics)
        self._file = PositionFile(folder / f"{guard.name}.json")
        self._position = 0
        #: The position in the file.
        self._saved: int | None = None
        self._saved_at = time.monotonic()
        self._thread = PluginThread(guard.name, "follow", self._run)
        #: Set when a stop did not wait for the plug-in: a new follower may have the file.
        self._is_abandoned = False

    def behind_bytes(self) -> int:
        """Return the bytes of the visible log that the plug-in has not kept."""
        return max(0, self._store.statistics()["visible"] - self._position)

    def prepare(self) -> None:
        """Read the position, before the log grows. Raises `ConfigError` for a damaged file."""
        known, store = self._file.load(), self._store.statistics()
        begin, end = store["min_physical"], store["max_physical"]
        if known is None:
            known = begin if self._plugin.begins == "oldest" else end
        if known > end:
            # A power loss, or a new master, cut the end of the log. Other messages will have these positions.
            log.warning(
                "plug-in %s is at position %d, and the log ends at %d: it continues there",
                self._guard.name,
                known,
                end,
            )
            known = end
        self._position = known
        self._save()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def stop(self) -> None:
        """Save the position and close the plug-in, or leave it behind if it does not return."""
        self._is_abandoned = not await self._thread.stop()

    def _run(self, stop: threading.Event) -> None:
        if not self._guard.open(stop):
            return
        while not stop.is_set():
            if self._step():
                continue
            stop.wait(self._guard.pause if self._guard.breaker.failures else LOOK_SECONDS)
        if self._is_abandoned:
            return
        self._save()
        self._guard.close()

    def _step(self) -> bool:
        """Pass one batch on; return whether another may follow immediately."""
        self._save(at_least=SAVE_SECONDS)
        if self._guard.breaker.state == "open":
            return False
        page = self._store.follow(
            self._position,
            broker=self._guard.context.broker,
            count=self._plugin.batch,
            bytes_max=PAGE_BYTES,
            topics=self._topics,
        )
        if missed := page.begin - self._position:
            self._guard.count(missed_bytes=missed)
            log.warning(
                "plug-in %s missed %d bytes of the log, from position %d on: retention deleted them",
                *(self._guard.name, missed, self._position),
            )
            self._position = page.begin
        if page.messages:
            if not self._guard.breaker.admits():
                return False
            if not self._guard.call("keep", lambda: self._plugin.keep(page.messages)):
                return False
            self._guard.count(messages=len(page.messages))
        if page.damaged:
            self._guard.count(damaged_bytes=page.damaged)
            log.warning("plug-in %s passed %d damaged bytes of the log", self._guard.name, page.damaged)
        self._position = page.next
        return page.next > page.begin

    def _save(self, at_least: float = 0.0) -> None:
        """Save the position if the last save was at least `at_least` seconds ago."""
        now = time.monotonic()
        if self._position == self._saved or self._is_abandoned or now - self._saved_at < at_least:
            return
        self._saved_at = now
        try:
            self._file.save(self._position)
        except OSError as error:
            self._guard.failed("the save of its position", error)
        else:
            self._saved = self._position
