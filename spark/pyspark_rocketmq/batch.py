"""Batch reads: a snapshot of topics.

The driver plans a read at the first action on a DataFrame. From Spark 4.2 on, it keeps the plan: one `load()` is one
snapshot. Before, each action plans again.
"""

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_rocketmq.cluster import Cluster, lost
from pyspark_rocketmq.offsets import EARLIEST, LATEST, Queue
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.plan import ranges_between
from pyspark_rocketmq.schema import Asked
from pyspark_rocketmq.task import Task, read, tasks_of
from pyspark_rocketmq.wanted import Narrowing, wanted_by
from rmqpy.errors import BrokerError, ConfigError, Unsupported
from rmqpy.message import Filter

if TYPE_CHECKING:
    import pyarrow


class TopicReader(DataSourceReader):
    """Plans a read on the driver. A pickled copy reads a part of it on an executor."""

    def __init__(self, options: Options, asked: Asked) -> None:
        self._options = options
        self._asked = asked
        self._wanted = wanted_by(options)
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        """Return the tasks, at least one: Spark would replace an empty list by a task without ranges."""
        narrowing = self._narrowing
        with Cluster(self._options) as cluster:
            held = cluster.held(cluster.queues())
            start, end = cluster.first(held, EARLIEST), cluster.last(held, LATEST)
            for queue in held:
                if start[queue] > end[queue]:
                    raise ConfigError(f"queue {queue}: start {start[queue]} is after end {end[queue]}")
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
        """Yield the rows of one task."""
        return read(partition, self._options, self._asked)

    def _messages(self, cluster: Cluster, queues: list[Queue]) -> Filter:
        """Return the filter for brokers. Where brokers do not evaluate predicates of the query, Spark does."""
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
