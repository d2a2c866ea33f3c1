"""Counts by topic on disk: pending timed messages in `timermetrics`, open half messages in `transactionMetrics`.

Owns the files, for an Apache broker that takes over the folder; this broker counts again at each start. The data plane
owns the counts. Written every few seconds after changes, and at the stop. Threads: the event loop's; a worker queries
the data plane and writes the file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from rmqpy._native import DueMessages, Transactions
from rmqpy.clock import Clock
from rmqpy.control.tables.file import TableFile, Versioned
from rmqpy.errors import ConfigError
from rmqpy.protocol.declare import record
from rmqpy.protocol.requests.timers import TimerMetricsTable, TopicCount
from rmqpy.protocol.topics import DataVersion

log = logging.getLogger(__name__)

C = TypeVar("C", bound=Versioned)


@record
class TransactionMetricsTable:
    """The content of `transactionMetrics`."""

    data_version: DataVersion = DataVersion()
    transaction_count: dict[str, TopicCount]


class CountFile(Generic[C]):
    """One file, and the counts that it follows."""

    def __init__(
        self,
        path: Path,
        kind: type[C],
        content: Callable[[DataVersion, dict[str, TopicCount]], C],
        read: Callable[[], Mapping[str, int]],
        clock: Clock,
    ) -> None:
        """`read` is called in a worker."""
        self._file = TableFile(path, kind, self._snapshot, clock, is_compact=True)
        self._content = content
        self._read = read
        self._clock = clock
        self._counts: dict[str, TopicCount] = {}
        self._saved = self._counts

    def load(self) -> None:
        """Read the file to continue its version. Blocks.

        Its content follows from the store, so an unreadable file is only logged, and replaced.
        """
        try:
            self._file.load()
        except ConfigError as error:
            log.warning("cannot read counts by topic, counting again: %s", error)

    async def now(self) -> C:
        """Return the current counts. Raises `StoreError`."""
        await self._count()
        return self._snapshot()(self._file.version)

    async def save(self) -> None:
        """Write the file if a count has changed since the last write. Raises `StoreError`."""
        await self._count()
        counts = self._counts
        if counts != self._saved:
            await self._file.save()
            self._saved = counts

    async def _count(self) -> None:
        found = await asyncio.to_thread(self._read)
        now_ms, before = self._clock.wall_ms(), self._counts
        self._counts = {
            topic: known
            if (known := before.get(topic)) is not None and known.count == count
            else TopicCount(count=count, time_stamp=now_ms)
            for topic, count in found.items()
        }

    def _snapshot(self) -> Callable[[DataVersion], C]:
        counts = dict(self._counts)
        return lambda version: self._content(version, counts)


def timer_counts_in(folder: Path, due: DueMessages, clock: Clock) -> CountFile[TimerMetricsTable]:
    """Return the file of timed messages."""

    def read() -> dict[str, int]:
        statistics = due.statistics()
        return {each.topic: each.pending for each in statistics.topics} if statistics is not None else {}

    return CountFile(
        folder / "timermetrics",
        TimerMetricsTable,
        lambda version, counts: TimerMetricsTable(data_version=version, timing_count=counts),
        read,
        clock,
    )


def transaction_counts_in(
    folder: Path, transactions: Transactions, clock: Clock
) -> CountFile[TransactionMetricsTable]:
    """Return the file of open half messages."""
    return CountFile(
        folder / "transactionMetrics",
        TransactionMetricsTable,
        lambda version, counts: TransactionMetricsTable(data_version=version, transaction_count=counts),
        lambda: {each.topic: each.open for each in transactions.statistics()},
        clock,
    )
