"""Accepted sends: those a producer has accepted and not yet passed to its native sender, which counts the rest.

Owns one producer's count of calls that look up a route, wait for room or linger. Closing and flushing wait for both
counts. Any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Accepted:
    """The calls of one producer whose message is not yet in flight; a `with` block counts one."""

    def __init__(self, notify: Callable[[], object] = lambda: None) -> None:
        """`notify` is called at the end of each call."""
        self.count = 0
        self._changed = threading.Condition()
        self._notify = notify

    def __enter__(self) -> None:
        with self._changed:
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self.count -= 1
            self._changed.notify_all()
        self._notify()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the count is zero; return False at the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.count, timeout_s)
