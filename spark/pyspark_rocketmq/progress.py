"""Progress of a query: its lag, computed from Spark's reports, and a listener that publishes it.

Spark reports offsets, and leaves the metrics of Python sources empty. The listener runs on a thread of Spark in the
program that started the query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.streaming.listener import StreamingQueryListener

import rmqpy
from pyspark_rocketmq.offsets import Position, Queue

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

#: A progress of Spark: `query.lastProgress`, that of an event, or its JSON.
Progress: TypeAlias = "StreamingQueryProgress | Mapping[str, Any] | str"


def lag(progress: Progress | None) -> dict[Queue, int]:
    """Return how many messages of each queue the query has not read yet.

    ::

        for queue, behind in lag(query.lastProgress).items():
            print(queue, behind)

    Empty before the first batch, and for sources other than `rocketmq`.
    """
    behind: dict[Queue, int] = {}
    for read, latest in _positions(progress):
        for queue, end in latest.items():
            behind[queue] = max(0, end - read.get(queue, 0))
    return behind


@dataclass(frozen=True)
class Report:
    """The key figures of one micro-batch."""

    query: str
    batch: int
    rows_per_second: float
    #: Unread messages of a queue: minimum, maximum and mean.
    behind_min: int
    behind_max: int
    behind_mean: float


class LagListener(StreamingQueryListener):
    """Reports the lag of a query after each micro-batch, and stores its position for lag tools if `group` is given.

    ::

        spark.streams.addListener(LagListener(print))
        spark.streams.addListener(LagListener(group="billing", namesrv="127.0.0.1:9876"))

    With `group`, the listener commits the end of each micro-batch. The option `commitOffsets` does so one micro-batch
    later. The group must exist.
    """

    def __init__(
        self,
        report: Callable[[Report], object] | None = None,
        *,
        group: str | None = None,
        namesrv: str | None = None,
    ) -> None:
        self._report = report
        self._group = group
        self._namesrv = namesrv

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report and commit the micro-batch."""
        progress = event.progress
        behind = lag(progress)
        if self._report is not None and behind:
            counts = behind.values()
            self._report(
                Report(
                    query=progress.name or str(progress.id),
                    batch=progress.batchId,
                    rows_per_second=progress.processedRowsPerSecond,
                    behind_min=min(counts),
                    behind_max=max(counts),
                    behind_mean=sum(counts) / len(counts),
                )
            )
        if self._group is not None:
            with rmqpy.Catalog(self._namesrv) as catalog:
                for read, _ in _positions(progress):
                    named = {rmqpy.MessageQueue(*queue): offset for queue, offset in read.items()}
                    catalog.commit(self._group, named)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing."""


def _positions(progress: Progress | None) -> list[tuple[Mapping[Queue, int], Mapping[Queue, int]]]:
    """Return the read offsets and the ends of the topics, for each source of this connector."""
    if progress is None:
        return []
    text = progress if isinstance(progress, str) else getattr(progress, "json", None)
    # Spark 4.0 and 4.1 have a dictionary here whose offsets are not JSON.
    facts = progress if text is None and isinstance(progress, Mapping) else json.loads(str(text))
    found = []
    for source in facts.get("sources", ()):
        read, latest = (_position(source.get(name)) for name in ("endOffset", "latestOffset"))
        if read is not None and latest is not None:
            # Spark 4.0 and 4.1 report the end of the micro-batch as the latest offset.
            found.append((read.queues, latest.queues if read.ends is None else read.ends))
    return found


def _position(reported: object) -> Position | None:
    """Return a reported offset, which is a nested object or its text, or `None` for an offset of another source."""
    try:
        nested = json.loads(reported) if isinstance(reported, str) else reported
        return Position.of_json(nested) if isinstance(nested, Mapping) else None
    except ValueError:
        return None
