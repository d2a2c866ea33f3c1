"""History: recent values of topics, groups and the broker, for charts.

Owns one ring of floats for each series that ever differed from zero, and the marks of events. Invariants: all rings
have `POINTS` places and end with the same sample; a value that could not be read is NaN. The memory is bounded by
`SERIES_MAX` rings, however long the history: a longer one has longer steps. Survives restarts of the broker within its
process. Threads: the event loop's; totals are read in a worker.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from rmqpy.clock import Clock
from rmqpy.protocol.requests.brokers import UNKNOWN, HistoryEvent
from rmqpy.protocol.requests.brokers import History as HistoryReply

SAMPLE_SECONDS: Final = 10
#: Samples of each series: an hour at 10 s, a day at 240 s.
POINTS: Final = 360
SERIES_MAX: Final = 40_000
EVENTS_MAX: Final = 200
#: Most series of one reply.
NAMES_MAX: Final = 1_000


class Sample(NamedTuple):
    """What a broker has counted so far, and what it measures now."""

    #: Messages into each topic, and to each group, since the start.
    arrived: Mapping[str, int]
    delivered: Mapping[str, int]
    #: Pending messages and dead letters by group.
    lags: Mapping[str, int]
    dead_letters: Mapping[str, int]
    #: Values of the broker; NaN if unknown.
    broker: Mapping[str, float]


class History:
    """All series of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._step_s = SAMPLE_SECONDS
        self._calls = 0
        #: Samples taken; the last is at `taken - 1` modulo `POINTS`.
        self._taken = 0
        self._last_at = clock.elapsed()
        self._series: dict[tuple[str, str], array[float]] = {}
        self._counters: dict[tuple[str, str], int] = {}
        self._events: deque[tuple[float, str, str]] = deque(maxlen=EVENTS_MAX)

    def begin(self, minutes: int, what: str, subject: str) -> None:
        """Record a start of the broker: `what` is `started`, `promoted` or `demoted`. Counters begin at zero."""
        step_s = max(SAMPLE_SECONDS, math.ceil(60 * minutes / POINTS / SAMPLE_SECONDS) * SAMPLE_SECONDS)
        if step_s != self._step_s:
            self._series.clear()
            self._taken = 0
        self._step_s = step_s
        self._counters.clear()
        self.note(what, subject)

    def note(self, what: str, subject: str) -> None:
        """Record an event of a topic, a group or the broker."""
        self._events.append((self._clock.elapsed(), what, subject))

    @property
    def is_due(self) -> bool:
        """Whether this call, one every `SAMPLE_SECONDS`, takes a sample."""
        self._calls += 1
        return self._calls * SAMPLE_SECONDS % self._step_s == 0

    def add(self, sample: Sample) -> None:
        """Append one sample to every series."""
        now = self._clock.elapsed()
        seconds, self._last_at = now - self._last_at, now
        at = self._taken % POINTS
        for ring in self._series.values():
            ring[at] = 0.0
        self._taken += 1
        self._put_all(at, "in", self._rates("in", sample.arrived, seconds))
        self._put_all(at, "out", self._rates("out", sample.delivered, seconds))
        self._put_all(at, "lag", sample.lags)
        self._put_all(at, "dead_letters", sample.dead_letters)
        self._put_all(at, "broker", sample.broker)
        if at == POINTS - 1:
            # Deleted and idle ones.
            for key in [key for key, ring in self._series.items() if not any(ring)]:
                del self._series[key]

    def view(self, kinds: Sequence[str], names: Sequence[str]) -> HistoryReply:
        """Return the series of these kinds and names, oldest value first. Beyond the limit a name has no series."""
        series = {kind: {name: self._values(kind, name) for name in names[:NAMES_MAX]} for kind in kinds}
        now = self._clock.elapsed()
        return HistoryReply(
            step_millis=self._step_s * 1_000,
            age_millis=round((now - self._last_at) * 1_000),
            series=series,
            events=[
                HistoryEvent(ago_millis=round((now - at) * 1_000), what=what, subject=subject)
                for at, what, subject in self._events
            ],
        )

    def _values(self, kind: str, name: str) -> list[float]:
        count = min(self._taken, POINTS)
        ring = self._series.get((kind, name))
        if ring is None:
            # Nothing was counted so far, unless there was no room for it.
            return [0.0 if len(self._series) < SERIES_MAX and kind != "broker" else UNKNOWN] * count
        begin = self._taken % POINTS if self._taken > POINTS else 0
        ordered = (ring[(begin + place) % POINTS] for place in range(count))
        return [UNKNOWN if math.isnan(value) else round(value, 3) for value in ordered]

    def _rates(self, kind: str, totals: Mapping[str, int], seconds: float) -> Iterable[tuple[str, float]]:
        for name, total in totals.items():
            key = (kind, name)
            before = self._counters.get(key, 0)
            self._counters[key] = total
            yield name, max(0, total - before) / seconds if seconds > 0 else math.nan

    def _put_all(self, at: int, kind: str, values: Mapping[str, float] | Iterable[tuple[str, float]]) -> None:
        for name, value in values.items() if isinstance(values, Mapping) else values:
            key = (kind, name)
            ring = self._series.get(key)
            if ring is None:
                if (not value and kind != "broker") or len(self._series) >= SERIES_MAX:
                    continue
                ring = self._series[key] = array("f", bytes(4 * POINTS))
            ring[at] = value
