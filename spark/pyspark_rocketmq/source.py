"""The batch source: topics as they are now, as a DataFrame.

Planning happens on the driver: options, queues, offsets, tasks. A task carries names of queues and offsets, nothing
that is bound to a process; its executor finds the brokers itself and has rmqpy fill Arrow batches natively. One
`load()` is one snapshot: Spark plans it at the first action and keeps the plan.
"""

import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import rmqpy
from pyspark_rocketmq.offsets import Bound, Queue, Range
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.plan import Held, cut, pack, resolve
from pyspark_rocketmq.schema import asked, default_schema

if TYPE_CHECKING:
    import pyarrow

#: The group brokers see reading. Nothing is committed under it.
GROUP = "spark-rocketmq"


class RocketMQSource(DataSource):
    """`spark.read.format("rocketmq")`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._options = Options.parse(options)

    def schema(self) -> StructType:
        return default_schema(self._options.with_properties)

    def reader(self, schema: StructType) -> "TopicReader":
        return TopicReader(self._options, asked(schema))


class Task(InputPartition):
    """What one task reads: ranges of queues, of which there may be none."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class TopicReader(DataSourceReader):
    """Plans a read on the driver and, pickled, does a part of it on an executor."""

    def __init__(self, options: Options, columns: dict[str, str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """The tasks. Never none: Spark would make one of its own that knows no ranges."""
        options = self._options
        with rmqpy.PullConsumer(GROUP, self._config(), auto_commit=False) as consumer:
            queues = [Queue(*queue) for topic in options.topics for queue in consumer.queues(topic)]
            held = {queue: Held(*consumer.offsets(_named(queue))) for queue in queues}
            starting, ending = (
                bound if time_ms is None else _stored_since(consumer, queues, time_ms)
                for bound, time_ms in (
                    (options.starting, options.starting_ms),
                    (options.ending, options.ending_ms),
                )
            )
        ranges, losses = resolve(held, starting, ending)
        if losses and options.is_loss_fatal:
            raise rmqpy.errors.DataLoss("; ".join(losses), hint="failOnDataLoss=false reads what is there")
        for loss in losses:
            warnings.warn(loss, stacklevel=1)
        pieces = cut(ranges, options.partition_rows_max, options.partitions_min)
        tasks = pack(pieces, options.pack_rows, options.partitions_min, options.partitions_max)
        return [Task(task) for task in tasks or [()]]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """The rows of one task, in batches that rmqpy has filled; Python never sees a message."""
        import pyarrow

        assert isinstance(partition, Task)
        options = self._options
        ranges = [rmqpy.QueueRange(_named(queue), start, end) for queue, start, end in partition.ranges]
        with rmqpy.read_ranges(
            ranges,
            self._config(),
            columns=self._columns,
            group=GROUP,
            batch_rows=options.batch_rows,
            batch_bytes=options.batch_bytes,
            fail_on_data_loss=options.is_loss_fatal,
        ) as batches:
            for native in batches:
                batch = pyarrow.record_batch(native)
                # A batch ends with the pull that filled it, which may bring more rows than were left to fill.
                for start in range(0, batch.num_rows, options.batch_rows):
                    yield batch.slice(start, options.batch_rows)

    def _config(self) -> rmqpy.ClientConfig:
        return rmqpy.ClientConfig(
            namesrv=self._options.namesrv, request_timeout=self._options.request_timeout_ms / 1000
        )


def _named(queue: Queue) -> rmqpy.MessageQueue:
    return rmqpy.MessageQueue(*queue)


def _stored_since(consumer: rmqpy.PullConsumer, queues: list[Queue], time_ms: int) -> Bound:
    """The first offset of each queue that was stored at or after a time."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return {queue: consumer.offset_at(_named(queue), moment) for queue in queues}
