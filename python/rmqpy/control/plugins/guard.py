"""Guard: the only place where the code of a plug-in is called.

Invariant: nothing that a plug-in raises leaves a call, whatever its class. Failures are logged, at most one a second,
and counted. Threads: the plug-in's own for calls; any may read counts and state.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rmqpy.control.plugins.breaker import Breaker
from rmqpy.findings import Finding, Trouble
from rmqpy.plugins import Context
from rmqpy.plugins.loading import LoadedPlugin

log = logging.getLogger(__name__)

#: The minimum time between log lines about failures of one plug-in.
LOG_SECONDS: Final = 1.0
#: The pauses after failures in a row, doubled each time.
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 5.0
#: A call that takes longer is a problem to report.
BUSY_SECONDS_MAX: Final = 30.0


@dataclasses.dataclass
class Counts:
    """What a plug-in did since the start."""

    calls: int = 0
    failures: int = 0
    #: Messages passed to it.
    messages: int = 0
    #: Messages that an observer did not get.
    skipped: int = 0
    #: Bytes of the log that were deleted before a follower read them.
    missed_bytes: int = 0
    #: Bytes of the log without readable records.
    damaged_bytes: int = 0
    refusals: int = 0
    timeouts: int = 0


class Guard:
    """Calls of one plug-in."""

    def __init__(self, loaded: LoadedPlugin, context: Context) -> None:
        self.loaded = loaded
        self.name, self.kind = loaded.name, loaded.kind
        self.breaker = Breaker()
        self.context = context
        self._counts = Counts()
        self._turn = threading.Lock()
        #: The running call, and when it began.
        self._running: tuple[str, float] | None = None
        self._last_error = ""
        self._logged: float | None = None
        self._unlogged = 0
        self._is_open = False

    @property
    def counts(self) -> Counts:
        """A copy of the counts."""
        with self._turn:
            return dataclasses.replace(self._counts)

    def count(self, **more: int) -> None:
        """Add to the counts."""
        with self._turn:
            for name, number in more.items():
                setattr(self._counts, name, getattr(self._counts, name) + number)

    def call(self, what: str, work: Callable[[], object]) -> bool:
        """Call a method of the plug-in; return whether it succeeded. The caller has asked the breaker."""
        try:
            with self.running(what):
                work()
        # Also SystemExit, which would end the thread in silence.
        except BaseException as error:
            self.failed(what, error)
            return False
        self.breaker.succeeded()
        return True

    @contextmanager
    def running(self, what: str) -> Iterator[None]:
        """Count a call, and note that it runs."""
        self.count(calls=1)
        self._running = (what, time.monotonic())
        try:
            yield
        finally:
            self._running = None

    def failed(self, what: str, error: BaseException) -> None:
        """Log and count a failure."""
        self.count(failures=1)
        self._last_error = f"{what}: {type(error).__name__}: {error}"[:500]
        is_open = self.breaker.failed()
        now = time.monotonic()
        if self._logged is not None and now - self._logged < LOG_SECONDS:
            self._unlogged += 1
            return
        more = f", {self._unlogged} more failures before" if self._unlogged else ""
        paused = ", its calls pause" if is_open else ""
        log.error(
            "plug-in %s failed in %s, failures in a row=%d%s%s",
            *(self.name, what, self.breaker.failures, more, paused),
            exc_info=error,
        )
        self._logged, self._unlogged = now, 0

    def open(self, stop: threading.Event) -> bool:
        """Call `open` until it succeeds. Returns False if `stop` comes first."""
        while not stop.is_set():
            if self.breaker.admits() and self.call("open", lambda: self.loaded.plugin.open(self.context)):
                self._is_open = True
                log.info("plug-in %s opened: %s of %s", self.name, self.kind, self.loaded.source)
                return True
            stop.wait(self.pause)
        return False

    def close(self) -> None:
        """Call `close`, if the plug-in is open."""
        if self._is_open:
            self._is_open = False
            self.call("close", self.loaded.plugin.close)

    @property
    def pause(self) -> float:
        """Seconds to wait before the next call after a failure."""
        return min(PAUSE_SECONDS * 2.0 ** max(0, self.breaker.failures - 1), PAUSE_SECONDS_MAX)

    @property
    def busy_seconds(self) -> float:
        """For how long a call has been running; 0 without one."""
        running = self._running
        return time.monotonic() - running[1] if running else 0.0

    @property
    def is_open(self) -> bool:
        """Whether `open` has succeeded."""
        return self._is_open

    def trouble(self, check: str) -> Trouble | None:
        """Return the plug-in's problem now, or `None`."""
        if self.breaker.state != "closed":
            text = f"plug-in {self.name} fails, {self.breaker.failures} times in a row, last in {self._last_error}"
            advice = "read the broker's log; correct the plug-in, or remove it from the setting plugins"
            return Trouble(check, "warn", Finding(text, advice))
        running = self._running
        if running is not None and self.busy_seconds > BUSY_SECONDS_MAX:
            text = f"plug-in {self.name} has not returned from {running[0]} for {self.busy_seconds:.0f} s"
            return Trouble(check, "warn", Finding(text, "find out what it waits for, and restart the broker"))
        if missed := self.counts.missed_bytes:
            text = f"plug-in {self.name} missed {missed} bytes of the log, which retention deleted before it read them"
            advice = "keep messages longer, fileReservedTime, or make it faster; a restart resets the count"
            return Trouble(check, "warn", Finding(text, advice))
        return None
