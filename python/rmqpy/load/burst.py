"""A burst of timed messages: how fast a broker delivers what is all due in one second.

The ends of the topic's queues say what has been delivered. They are asked for every few milliseconds from that second
on: often enough for a burst that takes a second, and hardly any work for the broker.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from rmqpy.admin.client import Admin
from rmqpy.config.client import ClientConfig
from rmqpy.errors import RequestTimeout
from rmqpy.load import machine

_LOOK_S = 0.02
#: Without any message for so long there will be none.
_SILENCE_S = 60.0


class Delivery(NamedTuple):
    """What came of a burst."""

    messages: int
    #: From the begin of the second in which all are due to the first message seen, and to the last.
    first_s: float
    last_s: float
    #: Processor time that the brokers used meanwhile.
    brokers_cpu_s: float | None

    @property
    def messages_per_s(self) -> float:
        """From the begin of that second to the last message."""
        return self.messages / self.last_s


class Burst:
    """The messages of a topic from now on."""

    def __init__(self, config: ClientConfig, topic: str) -> None:
        self._config = config
        self._topic = topic
        with Admin(self._config) as admin:
            self._begin = self._end(admin)

    def delivered(self, count: int, due_s: float, pids: Sequence[int]) -> Delivery:
        """Wait for so many messages, due from the time `due_s` on. Raises `RequestTimeout` where they do not come."""
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
                    raise RequestTimeout(f"{found:,} of {count:,} messages were delivered, and no more")
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
