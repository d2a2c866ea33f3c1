"""The sink, batch and streaming: rows become messages, at least once.

A task sends what it gets with several requests on their way, and reports only when brokers have all of it. A row that
is sent again, because a task or a batch was repeated, has the same `msgId` as before, so that duplicates can be found.

A writer is made on the driver for each job or micro-batch and pickled into every task; nothing it sets in one of them
is seen anywhere else. Producers are kept per process: tasks come and go, connections stay.
"""

import os
import uuid
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import rmqpy
from pyspark_rocketmq.cluster import client_config
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.outbound import check, messages
from pyspark_rocketmq.writes import MicroBatchWrite, note, noted, numbered
from rmqpy.errors import ConfigError, NameServerUnreachable, TopicNotFound

if TYPE_CHECKING:
    import pyarrow

#: `queueSelector`, and what rmqpy calls it.
_PLACEMENTS: Final = {"roundRobin": "turn", "hash": "hash", "column": "column"}


@dataclass
class WriteResult(WriterCommitMessage):
    """Report of one task: everything counted here is stored."""

    rows: int
    requests: int
    #: The write in its micro-batch, if ids of rows depend on it.
    write: MicroBatchWrite | None = None


class TopicWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._columns = check(schema, options)
        check_topic(options)
        #: In place of a query id: the same in repeated tasks of this job, and in no other job.
        self._job = uuid.uuid4().hex
        #: Writes before this one in the micro-batches under way.
        self._written = noted()

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WriterCommitMessage:
        """Send the rows of one task. Returns when brokers have them; raises what kept one of them away."""
        return send(
            iterator, self._options, self._columns, _identity(self._options, self._job, self._written)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Have the next write of the micro-batch count this one."""
        for message in messages:
            if isinstance(message, WriteResult) and message.write is not None:
                note(message.write)
                return


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._columns = check(schema, options)
        check_topic(options)

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WriterCommitMessage:
        """Likewise."""
        return send(iterator, self._options, self._columns, _identity(self._options, "", {}))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do: what tasks have reported is stored."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave what was sent: the batch will be repeated, under the same ids."""


def refuse_overwrite(overwrite: bool) -> None:
    """A topic only grows."""
    if overwrite:
        raise ConfigError("a topic cannot be overwritten", hint='use .mode("append")')


def check_topic(options: Options) -> None:
    """Raise `TopicNotFound` before the first task starts. While no name server answers, that is for tasks to say."""
    if options.topic is None or options.create_topic:
        return
    try:
        with rmqpy.Catalog(client_config(options)) as catalog:
            catalog.queues(options.topic)
    except TopicNotFound:
        raise _missing(options.topic) from None
    except NameServerUnreachable:
        return


def _missing(topic: str | None) -> TopicNotFound:
    return TopicNotFound(
        f"topic {topic!r} does not exist",
        topic=topic,
        hint=f"createTopic=true makes it with its first message, or run: rmqpy topic create {topic}",
    )


def send(
    batches: "Iterator[pyarrow.RecordBatch]",
    options: Options,
    columns: dict[str, str],
    identity: "_RowIdentity",
) -> WriterCommitMessage:
    """Send every row of every batch and wait until all are stored."""
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
    except TopicNotFound as error:
        raise error if options.create_topic else _missing(error.topic) from None
    except ValueError as error:
        raise ConfigError(f"a row of partition {identity.partition} cannot be sent: {error}") from error
    finally:
        # Also when a row was refused: what is on its way must not outlive the task unseen.
        outcomes = [future.exception() for future in under_way]
    for failure in filter(None, outcomes):
        raise failure
    return WriteResult(rows, requests, None if options.idempotency_key == ("none",) else identity.write)


@dataclass(frozen=True)
class _RowIdentity:
    """Part of row ids that differs between tasks, and stays the same when a task is repeated."""

    query: str
    batch: str
    partition: int
    #: In a micro-batch; there may be several.
    write: MicroBatchWrite | None

    def seed(self, options: Options) -> bytes:
        """Of ids. Rows that are identified by their own columns may move to another task."""
        where = str(self.partition) if options.idempotency_key == ("position",) else ""
        number = 0 if self.write is None else self.write.number
        return f"{self.query}|{self.batch}|{options.topic or ''}|{number}|{where}|".encode()

    def properties(self) -> dict[str, str]:
        """For those who look at a single message."""
        known = {"SPARK_QUERY_ID": self.query, "SPARK_BATCH_ID": self.batch}
        return {name: value for name, value in known.items() if value} | {
            "SPARK_PARTITION_ID": str(self.partition)
        }


def _identity(options: Options, job: str, written: Mapping[MicroBatchWrite, int]) -> _RowIdentity:
    """Of a stream, and of a batch write inside `foreachBatch`, query and micro-batch; of any other write, the job."""
    context = TaskContext.get()
    if context is None:
        return _RowIdentity(job, "", 0, None)
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    execution = context.getLocalProperty("spark.sql.execution.root.id")
    write = None
    if query and execution and job:
        write = numbered(MicroBatchWrite(query, execution, options.topic or ""), written)
    return _RowIdentity(query or job, batch or "", context.partitionId(), write)


#: Producers that a process keeps. More settings are in use at a time by tasks of many queries only.
PRODUCERS_MAX: Final = 8
#: Kept for the tasks to come, the least recently used first. A worker that was forked makes its own. A process has one
#: task at a time, so that none is in use when another is asked for.
_PRODUCERS: Final[OrderedDict[tuple[Any, ...], rmqpy.Producer]] = OrderedDict()


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
    _PRODUCERS.move_to_end(key)
    while len(_PRODUCERS) > PRODUCERS_MAX:
        _PRODUCERS.popitem(last=False)[1].close()
    return producer
