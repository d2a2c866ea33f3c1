"""A topic as an Arrow stream: its offsets, and the stream for any library that takes one.

Invariant: the offsets are fixed when `read_topic` returns. Each use reads the same messages again, so a query may
use the table twice. Memory is bounded: a use holds one batch, and the replies that `RangeReader` buffers. A use is
for one thread at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies.arrow import need, pyarrow
from rmqpy.bodies.columns import CORRUPT, EXTRA, SCHEMA_ID, BodyCounts, TypedColumns
from rmqpy.bodies.format import BodyFormat, descriptor_bytes
from rmqpy.bodies.inference import SAMPLE_ROWS, infer
from rmqpy.client.pull.catalog import Catalog
from rmqpy.client.pull.ranges import (
    QueueRange,
    RangeOptions,
    RangeReader,
    column_types,
    default_columns,
    read_ranges,
)
from rmqpy.config.client import Address, ClientConfig
from rmqpy.config.spans import moment_of
from rmqpy.errors import ConfigError, RocketMQError
from rmqpy.message import Filter, MessageQueue

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow as pa

#: A time, an age before now, or either as text: `2026-01-31T12:00`, `1h`.
Moment = datetime | timedelta | str

#: The size of batches: larger than Spark's, which pass through a socket.
BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 32 << 20


def read_topic(
    topic: str,
    namesrv: Address | ClientConfig | None = None,
    *,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    tags: Filter = "*",
    body_format: str = "raw",
    body_schema: Any = None,
    infer_schema: bool = False,
    mode: str = "PERMISSIVE",
    separator: str = ",",
    schema_registry: str | None = None,
    descriptor_file: str | PathLike[str] | None = None,
    message_name: str | None = None,
    fail_on_data_loss: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> "TopicRead":
    """Return the messages that a topic holds now as an Arrow stream, which Polars, DuckDB, DataFusion and pandas
    take as it is.

    ::

        orders = rmqpy.read_topic("orders", "127.0.0.1:9876", since="1h", columns=["tags", "storeTimestamp"])
        orders.to_polars()
        orders.sql("select tags, count(*) from orders group by 1").show()

    `columns` as in `read_ranges`. `since` and `until` are times of storage, `until` exclusive.

    With `body_format` "json", "csv", "avro" or "protobuf" the column `body` is a structure. Its fields are those of
    `body_schema` (DDL such as `"id bigint, price double"`, a schema of pyarrow, Avro's JSON, or a generated class of
    Protobuf), those of the message `message_name` in `descriptor_file`, or sampled with `infer_schema`. A body that
    cannot be decoded is null and remains in the column `_corrupt_body`; `mode` "DROPMALFORMED" drops its row, and
    "FAILFAST" raises `DecodeError`. With `schema_registry`, the address of one, bodies begin with Confluent's header,
    and the column `bodySchemaId` has the id in it.

    `progress` is called with the offsets read and all offsets. Raises `TopicNotFound`, and `ConfigError` for an unknown
    column or an invalid schema.
    """
    config = ClientConfig.of(namesrv)
    bodies = BodyFormat.of(
        body_format,
        body_schema,
        mode=mode,
        separator=separator,
        registry=schema_registry,
        descriptors=b"" if descriptor_file is None else descriptor_bytes(descriptor_file),
        message=message_name or "",
    )
    with Catalog(config) as catalog:
        ranges = _ranges(catalog, topic, since, until)
        catalog.check_filter([each.queue for each in ranges], tags)
    options: RangeOptions = {
        "tags": tags,
        "fail_on_data_loss": fail_on_data_loss,
        "batch_rows": BATCH_ROWS,
        "batch_bytes": BATCH_BYTES,
    }
    if bodies.is_typed and not bodies.schema:
        if not infer_schema:
            raise bodies.without_schema("give body_schema, or set infer_schema=True")
        bodies = bodies.with_schema(infer(sample(ranges, config, options), bodies))
    return TopicRead(topic, ranges, config, columns, bodies, options, progress)


def sample(
    ranges: Iterable[QueueRange],
    config: ClientConfig,
    options: RangeOptions,
    rows: int = SAMPLE_ROWS,
) -> Iterator[bytes]:
    """Yield the latest bodies of each range, about `rows` in all. A sample without messages has no body."""
    pyarrow("a sampled schema")
    import pyarrow as pa

    ranges = [each for each in ranges if each.begin < each.end]
    share = max(1, rows // max(1, len(ranges)))
    last = [each._replace(begin=max(each.begin, each.end - share)) for each in ranges]
    given: RangeOptions = {**options, "columns": {"body": "binary"}}
    with read_ranges(last, config, **given) as reader:
        for batch in reader:
            yield from pa.record_batch(batch).column(0).to_pylist()


def _ranges(catalog: Catalog, topic: str, since: Moment | None, until: Moment | None) -> list[QueueRange]:
    queues = catalog.queues(topic)
    held = {queue: span for queue, span in catalog.offsets(queues).items() if span is not None}
    begins = _at(catalog, held, since, "since")
    ends = _at(catalog, held, until, "until")
    ranges = []
    for queue, (first, last) in held.items():
        begin = max(first, begins.get(queue, first))
        ranges.append(QueueRange(queue, begin, max(begin, min(last, ends.get(queue, last)))))
    return ranges


def _at(
    catalog: Catalog, queues: Iterable[MessageQueue], when: Moment | None, name: str
) -> dict[MessageQueue, int]:
    if when is None:
        return {}
    try:
        moment = moment_of(when)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{name} {when!r} is neither a time, such as 2026-01-31T12:00, nor an age, such as 1h"
        ) from None
    return catalog.since(dict.fromkeys(queues, moment))


class TopicRead:
    """Messages of a topic between fixed offsets. An Arrow stream that can be read again; made by `read_topic`."""

    def __init__(
        self,
        topic: str,
        ranges: Sequence[QueueRange],
        config: ClientConfig,
        columns: Sequence[str] | Mapping[str, str] | None,
        bodies: BodyFormat,
        options: RangeOptions,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.topic = topic
        #: The offsets of each queue.
        self.ranges = list(ranges)
        #: The format of bodies, with its schema.
        self.bodies = bodies
        self._config = config
        self._options = options
        self._progress = progress
        self._asked = asked(columns, bodies)
        #: What all uses decoded.
        self.counts = BodyCounts()
        #: The errors that ended uses, which libraries wrap in their own.
        self.failures: list[RocketMQError] = []

    @property
    def offsets(self) -> int:
        """The number of offsets, which is the maximum number of messages."""
        return sum(end - begin for _, begin, end in self.ranges)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._asked)

    @property
    def schema(self) -> "pa.Schema":
        """The schema of the table."""
        return self._schema(self._typed(self._asked))

    def select(self, *columns: str) -> "TopicRead":
        """Return the same messages with some of the columns, in this order. The others are not decoded."""
        for name in columns:
            if name not in self._asked:
                raise ConfigError(f"unknown column {name!r}; known are {', '.join(self._asked)}")
        made = TopicRead(
            self.topic, self.ranges, self._config, None, self.bodies, self._options, self._progress
        )
        made._asked = {name: self._asked[name] for name in columns}
        made.counts, made.failures = self.counts, self.failures
        return made

    def between(self, ranges: Sequence[QueueRange]) -> "TopicRead":
        """Return the same table with other offsets."""
        made = self.select(*self._asked)
        made.ranges = list(ranges)
        return made

    def watched(
        self, progress: Callable[[int, int], None] | None, batch_bytes: int = BATCH_BYTES
    ) -> "TopicRead":
        """Return the same table with another `progress`, and batches of this size at most."""
        made = self.select(*self._asked)
        made._progress = progress
        made._options = {**self._options, "batch_bytes": min(BATCH_BYTES, max(1024, batch_bytes))}
        return made

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the messages as record batches of pyarrow."""
        pa = pyarrow("record batches")
        typed = self._typed(self._asked)
        typed.counts = self.counts
        try:
            with self._reader(typed) as reader:
                for native in reader:
                    batch = typed.shaped(pa.record_batch(native))
                    if batch.num_rows:
                        yield batch
        except RocketMQError as error:
            self.failures.append(error)
            raise

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        typed = self._typed(self._asked)
        if typed.is_plain:
            # Without pyarrow: rmqpy exports Arrow itself.
            return self._reader(typed).__arrow_c_stream__(requested_schema)
        return self.reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        typed = self._typed(self._asked)
        if typed.is_plain:
            with self._empty(typed) as reader:
                return reader.__arrow_c_schema__()
        return self._schema(typed).__arrow_c_schema__()

    def reader(self) -> "pa.RecordBatchReader":
        """Return a record batch reader of pyarrow."""
        pa = pyarrow("a record batch reader")
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def dataset(self) -> "pa.dataset.Dataset":
        """Return a dataset of pyarrow, of which queries decode only the columns that they use:
        `polars.scan_pyarrow_dataset(read.dataset())`."""
        pyarrow("a dataset")
        from rmqpy.tables.dataset import TopicDataset

        return TopicDataset(self)

    def to_arrow(self) -> "pa.Table":
        """Return a table of pyarrow."""
        pyarrow("to_arrow")
        return self.reader().read_all()

    def to_polars(self) -> "polars.DataFrame":
        """Return a data frame of Polars."""
        return need("polars", "polars", "to_polars").DataFrame(self)

    def to_pandas(self, **options: Any) -> "pandas.DataFrame":
        """Return a data frame of pandas. Options as in `pyarrow.Table.to_pandas`."""
        need("pandas", "pandas", "to_pandas")
        return self.to_arrow().to_pandas(**options)

    def sql(self, query: str) -> "duckdb.DuckDBPyRelation":
        """Return the result of a query by DuckDB, in which this is a table with the name of its topic."""
        from rmqpy.tables.database import Topics

        topics = Topics(lambda name: read_topic(name, self._config))
        topics.add(self)
        found = topics.query(query)
        if found is None:
            raise ConfigError("the statement has no result", hint="select rows")
        return found

    def __repr__(self) -> str:
        return f"<TopicRead of {self.topic}: up to {self.offsets} messages; {', '.join(self._asked)}>"

    def _typed(self, columns: Mapping[str, str]) -> TypedColumns:
        return TypedColumns(columns, self.bodies)

    def _schema(self, typed: TypedColumns) -> "pa.Schema":
        pa = pyarrow("a schema")
        with self._empty(typed) as reader:
            return typed.schema(pa.schema(reader))

    def _empty(self, typed: TypedColumns) -> RangeReader:
        return read_ranges([], self._config, columns=typed.native)

    def _reader(self, typed: TypedColumns) -> RangeReader:
        options: RangeOptions = {**self._options, "columns": typed.native}
        reader = read_ranges(self.ranges, self._config, **options)
        if (progress := self._progress) is not None:
            total = self.offsets
            progress(0, total)
            reader.on_batch = lambda remaining: progress(total - remaining, total)
        return reader


def asked(columns: Sequence[str] | Mapping[str, str] | None, bodies: BodyFormat) -> dict[str, str]:
    """Return the columns of a read with their types for messages. Raises `ConfigError` for an unknown one."""
    known = column_types()
    extra = [name for name in EXTRA if bodies.is_typed and (name != SCHEMA_ID or bodies.has_header)]
    if columns is None:
        usual = {name: known[name][0] for name in default_columns()}
        shown = [name for name in extra if name != CORRUPT or bodies.mode == "PERMISSIVE"]
        return usual | {name: EXTRA[name] for name in shown}
    found: dict[str, str] = {}
    for name, kind in columns.items() if isinstance(columns, Mapping) else ((name, None) for name in columns):
        if name in extra:
            found[name] = EXTRA[name]
        elif name not in known:
            raise ConfigError(f"unknown column {name!r}; known are {', '.join([*known, *extra])}")
        elif kind is not None and kind not in known[name]:
            raise ConfigError(f"column {name!r} cannot be {kind}; it can be {' or '.join(known[name])}")
        else:
            found[name] = kind or known[name][0]
    if not found:
        raise ConfigError("a table needs at least one column")
    return found
