"""Burst of timed messages: the speed of delivery when all are due in one second.

The ends of the topic's queues show what was delivered. They are polled every few milliseconds from that second on:
often enough for a burst of one second, at little cost for the broker.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from rmqpy.admin.client import Admin
from rmqpy.config.client import ClientConfig
from rmqpy.errors import RequestTimeout
from rmqpy.load import machine

_LOOK_S = 0.02
#: Give up after this long without a message.
_SILENCE_S = 60.0


class Delivery(NamedTuple):
    """Result of a burst."""

    messages: int
    #: From the start of the due second to the first delivery, and to the last.
    first_s: float
    last_s: float
    #: Processor time of the brokers meanwhile.
    brokers_cpu_s: float | None

    @property
    def messages_per_s(self) -> float:
        """From the start of that second to the last message."""
        return self.messages / self.last_s


class Burst:
    """The messages of a topic from now on."""

    def __init__(self, config: ClientConfig, topic: str) -> None:
        self._config = config
        self._topic = topic
        with Admin(self._config) as admin:
            self._begin = self._end(admin)

    def delivered(self, count: int, due_s: float, pids: Sequence[int]) -> Delivery:
        """Wait for this many messages, due from time `due_s` on. Raises `RequestTimeout` if they do not arrive."""
        time.sleep(max(0.0, due_s - time.time()))
        cpu = _cpu(pids)
        first = last = None
        found, changed = 0, time.monotonic()
        with Admin(self._config) as admin:
            while found < count:
                time.sleep(_LOOK_S)
                before, found = found, self._end(admin) - self._begin
                if found > before:
                    last, changed = time.time() - due_s, time.monotonic()
                    first = last if first is None else first
                elif time.monotonic() - changed > _SILENCE_S:
                    raise RequestTimeout(f"only {found:,} of {count:,} messages were delivered")
        after = _cpu(pids)
        assert first is not None
        assert last is not None
        spent = after - cpu if cpu is not None and after is not None else None
        return Delivery(found, first, last, spent)

    def _end(self, admin: Admin) -> int:
        return sum(state.end for state in admin.topic(self._topic))


def _cpu(pids: Sequence[int]) -> float | None:
    spent = [machine.processor_seconds(pid) for pid in pids]
    return sum(seconds for seconds in spent if seconds is not None) if spent else None
