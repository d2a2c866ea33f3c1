"""Lag of a query: numbers from the progress Spark reports, and a listener that hands them on.

Spark fills in offsets and leaves the metrics of Python sources empty; what follows from offsets is computed here. A
listener runs in the program that started the query, on a thread of Spark's.
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

#: A progress as Spark has it: `query.lastProgress`, an event's, or its JSON.
Progress: TypeAlias = "StreamingQueryProgress | Mapping[str, Any] | str"


def lag(progress: Progress | None) -> dict[Queue, int]:
    """Number of messages that each queue has beyond what the query has read.

    ::

        for queue, behind in lag(query.lastProgress).items():
            print(queue, behind)

    Empty before the first batch, and for sources that are not RocketMQ's.
    """
    behind: dict[Queue, int] = {}
    for read, latest in _positions(progress):
        for queue, end in latest.items():
            behind[queue] = max(0, end - read.get(queue, 0))
    return behind


@dataclass(frozen=True)
class Report:
    """One micro-batch in a few numbers."""

    query: str
    batch: int
    rows_per_second: float
    #: Messages behind, of the queue that is nearest, of the one that is farthest, and on average.
    behind_min: int
    behind_max: int
    behind_mean: float


class LagListener(StreamingQueryListener):
    """Tells after each micro-batch how far behind a query is, and stores its place for lag tools if asked to.

    ::

        spark.streams.addListener(LagListener(print))
        spark.streams.addListener(LagListener(group="billing", namesrv="127.0.0.1:9876"))

    With a `group` the end of each batch is committed under it, without the delay of one batch that the option
    `commitOffsets` has. The group has to exist.
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
        """Nothing has been read."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A micro-batch is done."""
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
        """Nothing more will be read."""


def _positions(progress: Progress | None) -> list[tuple[Mapping[Queue, int], Mapping[Queue, int]]]:
    """For each of our sources: what has been read, and where the topics end."""
    if progress is None:
        return []
    text = progress if isinstance(progress, str) else getattr(progress, "json", None)
    facts = progress if isinstance(progress, Mapping) else json.loads(str(text))
    found = []
    for source in facts.get("sources", ()):
        read, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
        if read is not None and latest is not None:
            found.append((read, latest))
    return found


def _offsets(reported: object) -> Mapping[Queue, int] | None:
    """Offsets as Spark reports them: a nested object, or its text. `None` for those of another source."""
    try:
        nested = json.loads(reported) if isinstance(reported, str) else reported
        return Position.of_json(nested).queues if isinstance(nested, Mapping) else None
    except ValueError:
        return None
