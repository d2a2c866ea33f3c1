"""Histories: recent values that brokers keep in memory, added over the brokers of a cluster."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.errors import RocketMQError
from rmqpy.protocol.requests.brokers import HISTORY, UNKNOWN, History, ViewBrokerStatsData

#: Names in one request: they travel in its header.
_TOGETHER: Final = 100


class ChartEvent(NamedTuple):
    """An event."""

    at_ms: int
    broker: str
    what: str
    subject: str


class Series(NamedTuple):
    """Values at common times, oldest first. A value is None if a broker does not know its part."""

    step_ms: int
    times_ms: list[int]
    #: Kind → name → values.
    values: dict[str, dict[str, list[float | None]]]
    marks: list[ChartEvent]
    #: Brokers without a history: turned off, or of Apache.
    without: list[str]


class Histories(Part):
    """The histories of one cluster."""

    async def history(
        self, kinds: Sequence[str], names: Sequence[str], *, broker: str | None = None
    ) -> Series:
        """Return histories of topics (`in`), groups (`out`, `lag`, `dead_letters`) or brokers (`broker`, with the names
        `disk`, `p99_ms`, `behind_bytes`, `lag`, `dead_letters`), added over the masters, or of one broker."""
        found: dict[str, list[History]] = {}
        without: list[str] = []
        masters = await self._cluster.masters()
        for name, address in sorted(masters.items()):
            if broker in (None, name):
                try:
                    found[name] = await self._of(address, kinds, names)
                except RocketMQError:
                    without.append(name)
        return _together(found, kinds, without)

    async def _of(self, address: str, kinds: Sequence[str], names: Sequence[str]) -> list[History]:
        found = []
        for begin in range(0, len(names), _TOGETHER):
            some = "\n".join(names[begin : begin + _TOGETHER])
            ask = ViewBrokerStatsData(stats_name=HISTORY, stats_key=",".join(kinds), names=some)
            reply = (await self._cluster.ask(address, ask)).history
            if reply is None:
                raise RocketMQError("the broker has no history")
            found.append(reply)
        return found


def _together(found: Mapping[str, Sequence[History]], kinds: Sequence[str], without: list[str]) -> Series:
    """Add the values of brokers. Their samples are not simultaneous: the last ones count as of the same time."""
    now_ms = round(time.time() * 1_000)
    parts = [part for each in found.values() for part in each]
    step_ms = max((part.step_millis for part in parts), default=0)
    age_ms = min((part.age_millis for part in parts), default=0)
    values: dict[str, dict[str, list[float | None]]] = {kind: {} for kind in kinds}
    longest = max(
        (len(row) for part in parts for rows in part.series.values() for row in rows.values()), default=0
    )
    for each in found.values():
        for part in each:
            is_comparable = part.step_millis == step_ms
            for kind, rows in part.series.items():
                for name, row in rows.items():
                    _add(values[kind], name, row if is_comparable else [], longest)
    last_ms = now_ms - age_ms
    return Series(
        step_ms,
        [last_ms - step_ms * back for back in range(longest - 1, -1, -1)],
        values,
        list(_marks(found, now_ms)),
        without,
    )


def _add(into: dict[str, list[float | None]], name: str, row: Sequence[float], longest: int) -> None:
    padded = [None] * (longest - len(row)) + [None if value == UNKNOWN else value for value in row]
    known = into.get(name)
    into[name] = (
        padded
        if known is None
        else [None if a is None or b is None else a + b for a, b in zip(known, padded, strict=True)]
    )


def _marks(found: Mapping[str, Sequence[History]], now_ms: int) -> Iterator[ChartEvent]:
    for broker, parts in found.items():
        for event in parts[0].events if parts else ():
            yield ChartEvent(now_ms - event.ago_millis, broker, event.what, event.subject)
