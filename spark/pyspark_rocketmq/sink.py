"""The sink, batch and streaming: rows become messages, at least once.

A task sends what it gets with several requests on their way, and reports only when brokers have all of it. A row that
is sent again, because a task or a batch was repeated, has the same `msgId` as before, so that duplicates can be found.

A writer is made on the driver for each job or micro-batch and pickled into every task; nothing it sets in one of them
is seen anywhere else. Producers are kept per process: tasks come and go, connections stay.
"""

import os
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import rmqpy
from pyspark_rocketmq.cluster import client_config
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.outbound import check, messages
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow

#: `queueSelector`, and what rmqpy calls it.
_PLACEMENTS: Final = {"roundRobin": "turn", "hash": "hash", "column": "column"}


@dataclass
class WriteResult(WriterCommitMessage):
    """Report of one task: everything counted here is stored."""

    rows: int
    requests: int


class TopicWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._columns = check(schema, options)
        #: In place of a query id: the same in repeated tasks of this job, and in no other job.
        self._job = uuid.uuid4().hex

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WriterCommitMessage:
        """Send the rows of one task. Returns when brokers have them; raises what kept one of them away."""
        return send(iterator, self._options, self._columns, self._job)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._columns = check(schema, options)

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WriterCommitMessage:
        """Likewise."""
        return send(iterator, self._options, self._columns, "")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do: what tasks have reported is stored."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave what was sent: the batch will be repeated, under the same ids."""


def refuse_overwrite(overwrite: bool) -> None:
    """A topic only grows."""
    if overwrite:
        raise ConfigError("a topic cannot be overwritten", hint='use .mode("append")')


def send(
    batches: "Iterator[pyarrow.RecordBatch]", options: Options, columns: dict[str, str], job: str
) -> WriterCommitMessage:
    """Send every row of every batch and wait until all are stored."""
    identity = _identity(job)
    producer = _producer(options)
    rows = requests = 0
    under_way: deque[rmqpy.SendFuture] = deque()
    try:
        for batch in batches:
            futures = producer.submit_rows(
                messages(batch, columns, options),
                topic=options.topic,
                id_seed=None if options.idempotency_key == ("none",) else identity.seed(options),
                first_row=rows,
                properties=identity.properties() if options.spark_properties else None,
                placement=_PLACEMENTS[options.queue_selector],  # type: ignore[arg-type]
                batch_messages=options.send_batch_messages,
                batch_bytes=options.send_batch_bytes,
                create_topics=options.create_topic,
            )
            for future in futures:
                requests += 1
                under_way.append(future)
                while under_way and under_way[0].done():
                    if failure := under_way.popleft().exception():
                        raise failure
            rows += batch.num_rows
    except ValueError as error:
        raise ConfigError(f"a row of partition {identity.partition} cannot be sent: {error}") from error
    finally:
        # Also when a row was refused: what is on its way must not outlive the task unseen.
        outcomes = [future.exception() for future in under_way]
    for failure in filter(None, outcomes):
        raise failure
    return WriteResult(rows, requests)


@dataclass(frozen=True)
class _RowIdentity:
    """Part of row ids that differs between tasks, and stays the same when a task is repeated."""

    query: str
    batch: str
    partition: int

    def seed(self, options: Options) -> bytes:
        """Of ids. Rows that are identified by their own columns may move to another task."""
        where = str(self.partition) if options.idempotency_key == ("position",) else ""
        return f"{self.query}|{self.batch}|{where}|".encode()

    def properties(self) -> dict[str, str]:
        """For those who look at a single message."""
        known = {"SPARK_QUERY_ID": self.query, "SPARK_BATCH_ID": self.batch}
        return {name: value for name, value in known.items() if value} | {
            "SPARK_PARTITION_ID": str(self.partition)
        }


def _identity(job: str) -> _RowIdentity:
    """Of a stream, and of a batch write inside `foreachBatch`, query and micro-batch; of any other write, the job."""
    context = TaskContext.get()
    if context is None:
        return _RowIdentity(job, "", 0)
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return _RowIdentity(query or job, batch or "", context.partitionId())


#: Kept until the process ends. A worker that was forked makes its own.
_PRODUCERS: Final[dict[tuple[Any, ...], rmqpy.Producer]] = {}


def _producer(options: Options) -> rmqpy.Producer:
    config = client_config(options)
    settings = (
        options.producer_group,
        options.send_timeout_ms,
        options.send_retries,
        options.compress_threshold,
        options.max_in_flight,
    )
    key = (os.getpid(), config, *settings)
    producer = _PRODUCERS.get(key)
    if producer is None or producer.is_closed:
        producer = _PRODUCERS[key] = rmqpy.Producer(
            config,
            group=options.producer_group,
            send_timeout=options.send_timeout_ms / 1000,
            retries=options.send_retries,
            # From so many bytes on; rmqpy counts what lies above.
            compress_above=options.compress_threshold - 1,
            max_in_flight=options.max_in_flight,
        )
    return producer
