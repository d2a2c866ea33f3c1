"""Pending timed messages for an operator: by topic and due time."""

from collections import Counter
from typing import NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.protocol.requests.timers import DUE_WITHIN_S, GetTimerMetrics


class PendingTimers(NamedTuple):
    """Pending timed messages of a topic over all brokers."""

    topic: str
    waiting: int
    #: Seconds from now → messages due within them, but not within the next smaller number; None: later.
    due_within: dict[int | None, int]


class Timers(Part):
    """The timed messages of one cluster."""

    async def pending(self, topic: str | None = None) -> list[PendingTimers]:
        """Count pending messages of one topic or all, by topic. A recall counts against its message; Apache's brokers
        do not report due times."""
        counts: Counter[str] = Counter()
        due: dict[str, Counter[int | None]] = {}
        for _, _, table in await self._cluster.ask_masters(GetTimerMetrics(is_distributed=True)):
            for name, counted in table.timing_count.items():
                counts[name] += counted.count
            for name, within in table.timing_distribution.items():
                due.setdefault(name, Counter()).update(dict(zip((*DUE_WITHIN_S, None), within, strict=False)))
        return [
            PendingTimers(name, count, dict(due.get(name, {})))
            for name, count in sorted(counts.items())
            if count > 0 and topic in (None, name)
        ]
