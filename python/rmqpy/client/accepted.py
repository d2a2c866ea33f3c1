"""Accepted sends: taken by a producer and not yet with its native half, which counts the rest.

Owns one producer's count of calls that look for a route, wait for room or linger. Closing and flushing wait for both
counts: what was accepted before is in flight. Any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Accepted:
    """Calls of one producer that have begun and whose message is not on its way: `with` counts one."""

    def __init__(self, notify: Callable[[], object] = lambda: None) -> None:
        """`notify` is called after each call that has ended."""
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
        """Until there is none; False when the time passed first."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.count, timeout_s)
