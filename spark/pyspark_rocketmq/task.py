"""Read tasks: ranges of queues become Arrow batches.

A task has names of queues and offsets, and nothing bound to a process. Its executor looks up the brokers and keeps one
native client for later tasks. Messages never become Python objects.
"""

import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

import rmqpy
from pyspark_rocketmq.cluster import client_config
from pyspark_rocketmq.offsets import Range
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.plan import cut, pack
from pyspark_rocketmq.schema import Asked
from pyspark_rocketmq.workers import exclude_imports
from rmqpy.message import Filter

if TYPE_CHECKING:
    import pyarrow


class Task(InputPartition):
    """The ranges of queues that a task reads, possibly none."""

    def __init__(self, ranges: tuple[Range, ...], wanted: Filter = "*") -> None:
        super().__init__(ranges)
        self.ranges = ranges
        #: The filter of their messages.
        self.wanted = wanted


def tasks_of(ranges: Iterable[Range], options: Options, wanted: Filter) -> list[InputPartition]:
    """Divide ranges into tasks by the options."""
    pieces = cut(ranges, options.max_records_per_partition, options.min_partitions)
    packed = pack(pieces, options.pack_records, options.min_partitions, options.max_partitions)
    return [Task(task, wanted) for task in packed]


def read(partition: InputPartition, options: Options, asked: Asked) -> "Iterator[pyarrow.RecordBatch]":
    """Yield the rows of a task in batches that rmqpy filled."""
    import pyarrow

    assert isinstance(partition, Task)
    ranges = [
        rmqpy.QueueRange(rmqpy.MessageQueue(*queue), start, end) for queue, start, end in partition.ranges
    ]
    typed = asked.typed()
    with rmqpy.read_ranges(
        ranges,
        client_config(options),
        columns=asked.columns if typed is None else typed.native,
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
            batch = pyarrow.record_batch(native)
            batch = asked.shaped(batch if typed is None else typed.shaped(batch))
            # The last pull of a batch may exceed the maximum number of rows.
            for start in range(0, batch.num_rows, options.fetch_batch_rows):
                yield batch.slice(start, options.fetch_batch_rows)
    exclude_imports()
    if typed is not None and typed.counts.corrupt:
        counts = typed.counts
        warnings.warn(
            f"{counts.corrupt} of {counts.corrupt + counts.decoded} bodies are not {asked.bodies.name} of the schema "
            f"(mode {asked.bodies.mode}), the first: {counts.first}",
            stacklevel=1,
        )
