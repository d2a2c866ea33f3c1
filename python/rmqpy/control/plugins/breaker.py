"""Breaker: pauses the calls of a plug-in after failures in a row.

Closed: calls are made. Open: none are, for a pause. Half-open: one call is made, and its result closes or opens the
breaker. Threads: the caller's; any may read the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal

#: The number of failures in a row after which no calls are made, and the time until the next one.
FAILURES_MAX: Final = 5
PAUSE_SECONDS: Final = 10.0

State = Literal["closed", "half-open", "open"]


class Breaker:
    """The breaker of one plug-in."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` returns seconds."""
        self._now = now
        self._failures = 0
        #: When the breaker opened; `None` while it is closed.
        self._opened: float | None = None
        self._is_tried = False

    @property
    def failures(self) -> int:
        """The number of failures in a row."""
        return self._failures

    @property
    def state(self) -> State:
        """The state now."""
        opened = self._opened
        if opened is None:
            return "closed"
        return "half-open" if self._now() - opened >= PAUSE_SECONDS else "open"

    def admits(self) -> bool:
        """Return whether a call may be made now; its result must be reported."""
        state = self.state
        if state == "closed":
            return True
        if state == "open" or self._is_tried:
            return False
        self._is_tried = True
        return True

    def succeeded(self) -> None:
        """Report a successful call."""
        self._failures, self._opened, self._is_tried = 0, None, False

    def abandoned(self) -> None:
        """Report a call whose result stays unknown."""
        self._is_tried = False

    def failed(self) -> bool:
        """Report a failed call; return whether the breaker has opened, again or for the first time."""
        self._failures += 1
        self._is_tried = False
        if self._failures >= FAILURES_MAX:
            self._opened = self._now()
        return self._opened is not None
