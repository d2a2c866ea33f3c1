"""Reading of one task: ranges of queues become Arrow batches.

A task carries names of queues and offsets, nothing that is bound to a process; its executor finds the brokers itself
and keeps one native client for all tasks to come. Python never sees a message.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

import rmqpy
from pyspark_rocketmq.cluster import client_config
from pyspark_rocketmq.offsets import Range
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.plan import cut, pack
from pyspark_rocketmq.schema import Asked
from rmqpy.message import Filter

if TYPE_CHECKING:
    import pyarrow


class Task(InputPartition):
    """Ranges of queues that one task reads; there may be none."""

    def __init__(self, ranges: tuple[Range, ...], wanted: Filter = "*") -> None:
        super().__init__(ranges)
        self.ranges = ranges
        #: The messages of them that are wanted.
        self.wanted = wanted


def tasks_of(ranges: Iterable[Range], options: Options, wanted: Filter) -> list[InputPartition]:
    """Ranges, cut and packed as the options say."""
    pieces = cut(ranges, options.max_records_per_partition, options.min_partitions)
    packed = pack(pieces, options.pack_records, options.min_partitions, options.max_partitions)
    return [Task(task, wanted) for task in packed]


def read(partition: InputPartition, options: Options, asked: Asked) -> "Iterator[pyarrow.RecordBatch]":
    """The rows of one task, in batches that rmqpy has filled."""
    import pyarrow

    assert isinstance(partition, Task)
    ranges = [
        rmqpy.QueueRange(rmqpy.MessageQueue(*queue), start, end) for queue, start, end in partition.ranges
    ]
    with rmqpy.read_ranges(
        ranges,
        client_config(options),
        columns=asked.columns,
        tags=partition.wanted,
        group=options.consumer_group,
        batch_rows=options.fetch_batch_rows,
        batch_bytes=options.fetch_batch_bytes,
        pull_messages=options.pull_batch_size,
        pull_timeout=options.pull_timeout_ms / 1000,
        retries=options.fetch_retries,
        bad_text=options.body_decode_error,
        fail_on_data_loss=options.fail_on_data_loss,
    ) as batches:
        for native in batches:
            batch = asked.shaped(pyarrow.record_batch(native))
            # A batch ends with the pull that filled it, which may bring more rows than were left to fill.
            for start in range(0, batch.num_rows, options.fetch_batch_rows):
                yield batch.slice(start, options.fetch_batch_rows)
