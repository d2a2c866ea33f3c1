"""Measured interval of a client: the metrics every verb gives."""

import time
from collections.abc import Callable
from typing import Self

RunMetrics = dict[str, float]
"""One run: metric → value. Names end in the unit of times."""

Verb = Callable[[str, str, float], RunMetrics]
"""Address, topic, seconds → metrics."""

_LOOK_EVERY = 64


class Interval:
    """Clock and processor time of this process, from entering to leaving. Connections exist beforehand."""

    def __enter__(self) -> Self:
        self._began, self._used = time.monotonic(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds, self._spent = time.monotonic() - self._began, time.process_time() - self._used

    def is_over(self, seconds: float) -> bool:
        """True once it has lasted this long."""
        return time.monotonic() - self._began >= seconds

    def repeat(self, seconds: float, step: Callable[[], object], messages_each: int = 1) -> int:
        """Call `step` until it has lasted this long; return the number of messages."""
        count = 0
        while not self.is_over(seconds):
            for _ in range(_LOOK_EVERY):
                step()
            count += _LOOK_EVERY * messages_each
        return count

    def metrics(self, count: int) -> RunMetrics:
        """Messages per second, and microseconds of processor time per message."""
        return {"throughput": count / self._seconds, "client_cpu_us": self._spent / max(1, count) * 1e6}
