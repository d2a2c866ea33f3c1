"""A reader that must receive all messages, whatever dies meanwhile, and measures its longest pause."""

import time

import rmqpy
from wire import TIMEOUT_S


def send_numbers(namesrv: str, topic: str, count: int) -> None:
    """Send this number of messages, each with its number as body."""
    with rmqpy.Producer(namesrv) as producer:
        for future in [producer.submit(topic, b"%d" % number) for number in range(count)]:
            future.result(timeout=TIMEOUT_S)


class Silence:
    """The longest time from one message, or batch of them, to the next."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last: float | None = None

    def broken(self) -> None:
        """Something came."""
        now = time.monotonic()
        if self._last is not None:
            self.longest = max(self.longest, now - self._last)
        self._last = now
