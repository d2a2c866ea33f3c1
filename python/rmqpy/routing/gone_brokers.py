"""Gone brokers: the last address of each broker that left, until it is back.

Owns at most `GONE_MAX` entries, each for a day. A restart of the name server forgets them. Threads: only the event
loop's.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rmqpy.clock import Clock
from rmqpy.protocol.requests.routes import GoneBroker
from rmqpy.routing.brokers import BrokerInfo

#: How long a broker that left is remembered, and how many of them.
GONE_SECONDS: Final = 86_400.0
GONE_MAX: Final = 1_000


class _Gone(NamedTuple):
    info: BrokerInfo
    at: float
    is_stopped: bool


class GoneBrokers:
    """The table: brokers by cluster, name and id, oldest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gone: dict[tuple[str, str, int], _Gone] = {}

    def note(self, info: BrokerInfo, *, is_stopped: bool) -> None:
        """Remember a broker that has left. `is_stopped`: it said so itself."""
        key = (info.cluster, info.name, info.broker_id)
        self._gone.pop(key, None)
        if len(self._gone) >= GONE_MAX:
            del self._gone[next(iter(self._gone))]
        self._gone[key] = _Gone(info, self._clock.elapsed(), is_stopped)

    def back(self, info: BrokerInfo) -> None:
        """Forget a broker that registers: whatever had its place, and its own earlier ids."""
        if not self._gone:
            return
        self._gone.pop((info.cluster, info.name, info.broker_id), None)
        self._drop(lambda each: each.info.key == info.key)

    def list(self) -> list[GoneBroker]:
        """All of them, by name and id."""
        now = self._clock.elapsed()
        self._drop(lambda each: now - each.at > GONE_SECONDS)
        return sorted(self._rows(now), key=lambda each: (each.cluster, each.broker_name, each.broker_id))

    def _rows(self, now: float) -> Iterator[GoneBroker]:
        for info, at, is_stopped in self._gone.values():
            yield GoneBroker(
                cluster=info.cluster,
                broker_name=info.name,
                broker_id=info.broker_id,
                broker_addr=info.address,
                gone_millis=round((now - at) * 1_000),
                is_stopped=is_stopped,
            )

    def _drop(self, is_over: Callable[[_Gone], bool]) -> None:
        for key in [key for key, each in self._gone.items() if is_over(each)]:
            del self._gone[key]
