"""Consume statistics by topic, with rates over the last minute.

Owns the counts of one consumer. Any thread may read; one thread calls `sample` every `SAMPLE_S`.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rmqpy.protocol.requests.introspection import TopicRates

SAMPLE_S: Final = 10.0
#: The window of rates.
WINDOW_S: Final = 60.0


@dataclass(slots=True)
class TopicCounts:
    """Messages of one topic, calls, and their seconds, since the consumer's start."""

    consumed: int = 0
    failed: int = 0
    discarded: int = 0
    calls: int = 0
    call_s: float = 0.0
    pulls: int = 0
    pulled: int = 0
    pull_s: float = 0.0

    def add(self, other: TopicCounts) -> None:
        """Add counts of the same topic from another table."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


CountTable = dict[str, TopicCounts]


class ConsumeStatistics:
    """Counts by topic in several tables. Each has one writer, so counting takes no lock."""

    def __init__(self) -> None:
        self._tables: list[CountTable] = []
        self._pulls = self.table()
        self._samples: deque[tuple[float, Mapping[str, TopicCounts]]] = deque(maxlen=int(WINDOW_S / SAMPLE_S))
        self.sample()

    def table(self) -> CountTable:
        """Return a new table for one writer."""
        table: CountTable = {}
        self._tables.append(table)
        return table

    def pulled(self, topic: str, seconds: float, count: int) -> None:
        """Note a pull with its duration and messages. On the event loop."""
        counts = self._pulls.setdefault(topic, TopicCounts())
        counts.pulls += 1
        counts.pulled += count
        counts.pull_s += seconds

    def total(self) -> TopicCounts:
        """Return the counts of all topics together."""
        total = TopicCounts()
        for counts in self._copy().values():
            total.add(counts)
        return total

    def sample(self) -> None:
        """Store a sample of the counts; rates start at the oldest one."""
        self._samples.append((time.monotonic(), self._copy()))

    def rates(self) -> dict[str, TopicRates]:
        """Return rates by topic over the last minute, or the time since the start if shorter."""
        since, before = self._samples[0]
        seconds = max(time.monotonic() - since, 1e-3)
        return {
            topic: _rates(now, before.get(topic, TopicCounts()), seconds)
            for topic, now in self._copy().items()
        }

    def _copy(self) -> dict[str, TopicCounts]:
        totals: dict[str, TopicCounts] = defaultdict(TopicCounts)
        for table in self._tables:
            for topic, counts in table.copy().items():
                totals[topic].add(counts)
        return dict(totals)


def _rates(now: TopicCounts, before: TopicCounts, seconds: float) -> TopicRates:
    calls, pulls = now.calls - before.calls, now.pulls - before.pulls
    return TopicRates(
        consume_rt=1000 * (now.call_s - before.call_s) / calls if calls else 0.0,
        consume_ok_tps=(now.consumed - before.consumed) / seconds,
        consume_failed_tps=(now.failed - before.failed) / seconds,
        consume_failed_msgs=now.failed,
        pull_rt=1000 * (now.pull_s - before.pull_s) / pulls if pulls else 0.0,
        pull_tps=(now.pulled - before.pulled) / seconds,
    )
