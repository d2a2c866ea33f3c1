"""Counts by topic on disk: of timed messages that wait, `timermetrics`, and of open half messages,
`transactionMetrics`.

Owns the files, which are for a broker of the original that takes the folder over: ours counts anew at each start. The
counts belong to the data plane. Written every few seconds where they moved, and at stop. Threads: the event loop's; the
data plane is asked and the file written in a worker.
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
    """One file, and the counts it follows."""

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
        """Read the file, for its version, which goes on. Blocks.

        What it holds follows from the store: one that cannot be read is told of, and made anew.
        """
        try:
            self._file.load()
        except ConfigError as error:
            log.warning("counts by topic are made anew: %s", error)

    async def now(self) -> C:
        """The counts of this moment. Raises `StoreError`."""
        await self._count()
        return self._snapshot()(self._file.version)

    async def save(self) -> None:
        """Write the file if a count has moved since the last time. Raises `StoreError`."""
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
    """The file of timed messages."""

    def read() -> dict[str, int]:
        statistics = due.statistics()
        return {topic: waiting for topic, waiting, *_ in statistics[3]} if statistics is not None else {}

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
    """The file of open half messages."""
    return CountFile(
        folder / "transactionMetrics",
        TransactionMetricsTable,
        lambda version, counts: TransactionMetricsTable(data_version=version, transaction_count=counts),
        lambda: {topic: found for topic, found, *_ in transactions.statistics()},
        clock,
    )
