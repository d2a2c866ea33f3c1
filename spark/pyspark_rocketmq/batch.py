"""Batch reads: topics as they are now.

Planned on the driver, at the first action on a DataFrame, and kept: one `load()` is one snapshot.
"""

import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.datasource import Filter as QueryFilter

from pyspark_rocketmq.cluster import Cluster, lost
from pyspark_rocketmq.offsets import EARLIEST, LATEST, Queue
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.plan import ranges_between
from pyspark_rocketmq.predicates import wanted_by
from pyspark_rocketmq.pushdown import Narrowing
from pyspark_rocketmq.schema import Asked
from pyspark_rocketmq.task import Task, read, tasks_of
from rmqpy.errors import BrokerError, ConfigError, Unsupported
from rmqpy.message import Filter

if TYPE_CHECKING:
    import pyarrow


class TopicReader(DataSourceReader):
    """Plans a read on the driver and, pickled, does a part of it on an executor."""

    def __init__(self, options: Options, asked: Asked) -> None:
        self._options = options
        self._asked = asked
        self._wanted = wanted_by(options)
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        """The tasks. Never none: Spark would make one of its own that knows no ranges."""
        narrowing = self._narrowing
        with Cluster(self._options) as cluster:
            held = cluster.held(cluster.queues())
            start, end = cluster.first(held, EARLIEST), cluster.last(held, LATEST)
            for queue in held:
                if start[queue] > end[queue]:
                    raise ConfigError(f"queue {queue}: start {start[queue]} lies behind end {end[queue]}")
            wanted = [queue for queue in held if narrowing.admits(queue)]
            begin_ms, end_ms = narrowing.times_ms
            since = {} if begin_ms is None else cluster.since(dict.fromkeys(wanted, begin_ms))
            until = {} if end_ms is None else cluster.since(dict.fromkeys(wanted, end_ms))
            messages = self._messages(cluster, wanted)
        spans: dict[Queue, tuple[int, int]] = {
            queue: narrowing.span(
                max(start[queue], since.get(queue, 0)), min(end[queue], until.get(queue, end[queue]))
            )
            for queue in wanted
        }
        ranges, losses = ranges_between(
            {queue: first for queue, (first, _) in spans.items()},
            {queue: last for queue, (_, last) in spans.items()},
            held,
        )
        lost(losses, self._options, lambda loss: warnings.warn(loss, stacklevel=1))
        return tasks_of(ranges, self._options, messages) or [Task(())]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """The rows of one task."""
        return read(partition, self._options, self._asked)

    def _messages(self, cluster: Cluster, queues: list[Queue]) -> Filter:
        """The messages that are wanted. What the query itself could leave to brokers, Spark does where they do not."""
        wanted = self._wanted
        cluster.check_filter(queues, wanted)
        if (narrowed := self._narrowing.by_properties(wanted)) is not None:
            try:
                cluster.check_filter(queues, narrowed)
            except (Unsupported, BrokerError) as error:
                warnings.warn(f"filters on properties are left to Spark: {error}", stacklevel=1)
            else:
                return narrowed
        return self._narrowing.by_tags(wanted)


class FilteringReader(TopicReader):
    """The same, narrowed by the query's filters. Apart, because Spark refuses every read of a class that has
    `pushFilters` while its setting is off."""

    def pushFilters(self, filters: "list[QueryFilter]") -> "Iterable[QueryFilter]":  # noqa: N802
        """Use what helps to read less; what Spark has still to apply."""
        return self._narrowing.take(filters)
