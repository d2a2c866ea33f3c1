"""The sink for batches and streams: rows become messages, at least once.

A task sends its rows with several requests in flight, and reports success only after brokers have stored all of them. A
row that is sent again, because a task or a micro-batch was repeated, keeps its `msgId`, so that consumers recognize
duplicates.

Spark creates a writer on the driver for each job or micro-batch and pickles it into every task. State that `write` sets
stays in its task. Each process keeps its producers: connections outlive tasks.
"""

import os
import uuid
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import rmqpy
from pyspark_rocketmq.cluster import client_config
from pyspark_rocketmq.features import ArrowStreamWriter
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.outbound import check, messages
from pyspark_rocketmq.rows import batches
from pyspark_rocketmq.workers import exclude_imports
from pyspark_rocketmq.writes import MicroBatchWrite, note, noted, numbered
from rmqpy.errors import ConfigError, NameServerUnreachable, TopicNotFound

if TYPE_CHECKING:
    import pyarrow

#: Values of `queueSelector` by their names in rmqpy.
_PLACEMENTS: Final = {"roundRobin": "turn", "hash": "hash", "column": "column"}


@dataclass
class WriteResult(WriterCommitMessage):
    """The report of one task. Brokers have stored everything it counts."""

    rows: int
    requests: int
    #: The write within its micro-batch, if ids of rows depend on it.
    write: MicroBatchWrite | None = None


class TopicWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._columns = check(schema, options)
        check_topic(options)
        #: Replaces the query id: equal in repeated tasks of this job, and different in other jobs.
        self._job = uuid.uuid4().hex
        #: Earlier writes in the micro-batches in progress.
        self._written = noted()

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WriterCommitMessage:
        """Send the rows of one task. Returns once brokers have stored them, and raises the first failure."""
        return send(
            iterator, self._options, self._columns, _identity(self._options, self._job, self._written)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Count this write for the next one of the micro-batch."""
        for message in messages:
            if isinstance(message, WriteResult) and message.write is not None:
                note(message.write)
                return


class TopicStreamWriter(ArrowStreamWriter):
    """Writes micro-batches."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = check(schema, options)
        check_topic(options)
        exclude_imports()

    def write(self, iterator: "Iterator[Any]") -> WriterCommitMessage:
        """Send the rows of one task, as `TopicWriter` does."""
        given = batches(iterator, self._schema)
        result = send(given, self._options, self._columns, _identity(self._options, "", {}))
        exclude_imports()
        return result

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing for messages: brokers have stored the rows of all tasks."""
        exclude_imports()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the micro-batch is repeated with the same ids."""


def refuse_overwrite(overwrite: bool) -> None:
    """Raise `ConfigError`: messages of a topic cannot be replaced."""
    if overwrite:
        raise ConfigError("a topic cannot be overwritten", hint='use .mode("append")')


def check_topic(options: Options) -> None:
    """Raise `TopicNotFound` before the first task starts. If no name server answers, tasks try again."""
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
        hint=f"set createTopic=true to create it with its first message, or run: rmqpy topic create {topic}",
    )


def send(
    batches: "Iterator[pyarrow.RecordBatch]",
    options: Options,
    columns: dict[str, str],
    identity: "_RowIdentity",
) -> WriterCommitMessage:
    """Send all rows of all batches, and wait until brokers have stored them."""
    producer = _producer(options)
    rows = requests = 0
    in_flight: deque[rmqpy.SendFuture] = deque()
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
                in_flight.append(future)
                while in_flight and in_flight[0].done():
                    if failure := in_flight.popleft().exception():
                        raise failure
            rows += batch.num_rows
    except TopicNotFound as error:
        raise error if options.create_topic else _missing(error.topic) from None
    except ValueError as error:
        raise ConfigError(f"a row of partition {identity.partition} cannot be sent: {error}") from error
    finally:
        # Also after a refused row: no request may outlive the task unnoticed.
        outcomes = [future.exception() for future in in_flight]
    for failure in filter(None, outcomes):
        raise failure
    return WriteResult(rows, requests, None if options.idempotency_key == ("none",) else identity.write)


@dataclass(frozen=True)
class _RowIdentity:
    """The part of row ids that differs between tasks, and is equal when a task is repeated."""

    query: str
    batch: str
    partition: int
    #: The write within its micro-batch, which may have several.
    write: MicroBatchWrite | None

    def seed(self, options: Options) -> bytes:
        """Return the seed of ids, without the task where columns identify a row: it may move to another task."""
        where = str(self.partition) if options.idempotency_key == ("position",) else ""
        number = 0 if self.write is None else self.write.number
        return f"{self.query}|{self.batch}|{options.topic or ''}|{number}|{where}|".encode()

    def properties(self) -> dict[str, str]:
        """Return the origin of a message, as properties."""
        known = {"SPARK_QUERY_ID": self.query, "SPARK_BATCH_ID": self.batch}
        return {name: value for name, value in known.items() if value} | {
            "SPARK_PARTITION_ID": str(self.partition)
        }


def _identity(options: Options, job: str, written: Mapping[MicroBatchWrite, int]) -> _RowIdentity:
    """Return query and micro-batch for a stream and for a write inside `foreachBatch`, and the job for other writes."""
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


#: Maximum number of producers in a process. Only tasks of many queries use more settings at a time.
PRODUCERS_MAX: Final = 8
#: Producers for later tasks, the least recently used first. A forked worker creates its own. A process runs one task at
#: a time, so evicted producers are idle.
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
            # The option is the smallest compressed size, `compress_above` the largest uncompressed one.
            compress_above=options.compress_threshold - 1,
            max_in_flight=options.max_in_flight,
        )
    _PRODUCERS.move_to_end(key)
    while len(_PRODUCERS) > PRODUCERS_MAX:
        _PRODUCERS.popitem(last=False)[1].close()
    return producer
