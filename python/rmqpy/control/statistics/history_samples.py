"""Samples of the history, from the parts of one start of a broker. On the event loop; totals are read in a worker."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rmqpy.control.statistics.group_totals import GroupTotals, Subscribed
from rmqpy.control.statistics.history import History, Sample
from rmqpy.control.statistics.put_times import PutTimes, percentile_us
from rmqpy.control.statistics.traffic import Statistics
from rmqpy.protocol.requests.replicas import HaStatus


@dataclass(slots=True, eq=False)
class HistorySamples:
    """Takes the samples of one start."""

    _history: History
    _statistics: Statistics
    _totals: GroupTotals
    _put_times: PutTimes
    _log_folder: str
    _replicas: Callable[[], HaStatus]
    _puts: tuple[int, ...] = field(default=(), init=False)

    async def sample(self) -> None:
        """Take a sample if one is due."""
        if not self._history.is_due:
            return
        arrived = {name: each.messages for name, each in self._statistics.totals("topic put").items()}
        delivered: Counter[str] = Counter()
        for key, each in self._statistics.totals("group get").items():
            delivered[key.rpartition("@")[2]] += each.messages
        lags, dead_letters = await asyncio.to_thread(self._of_groups, self._totals.subscribed())
        broker = {
            "disk": self._disk(),
            "p99_ms": self._p99_ms(),
            "behind_bytes": _behind_bytes(self._replicas()),
            "lag": sum(lags.values()),
            "dead_letters": sum(dead_letters.values()),
        }
        arrived[""], delivered[""] = sum(arrived.values()), sum(delivered.values())
        self._history.add(Sample(arrived, delivered, lags, dead_letters, broker))

    def _of_groups(self, subscribed: Subscribed) -> tuple[dict[str, int], dict[str, int]]:
        return (
            {name: each.lag for name, each in self._totals.lags(subscribed).items()},
            {name: each.messages for name, each in self._totals.dead_letters().items()},
        )

    def _disk(self) -> float:
        try:
            usage = shutil.disk_usage(self._log_folder)
        except OSError:
            return math.nan
        return usage.used / usage.total

    def _p99_ms(self) -> float:
        """Return the time that 99 % of the sends since the last sample did not exceed; NaN without any."""
        counts = self._put_times.counts()
        before = self._puts or (0,) * len(counts)
        self._puts = counts
        recent = [now - then for now, then in zip(counts, before, strict=True)]
        return percentile_us(recent, 0.99) / 1_000 if any(recent) else math.nan


def _behind_bytes(status: HaStatus) -> float:
    """Return the largest lag of a master's slaves, or a slave's own; NaN without replicas."""
    if status.master:
        return max((slave.diff for slave in status.ha_connection_info), default=math.nan)
    own = status.ha_client_runtime_info.behind_bytes
    return math.nan if own is None else own
