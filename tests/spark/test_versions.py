"""Versions of Spark: their features, and substitutes for missing ones."""

import importlib
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyspark
import pytest
from pyspark.sql import datasource
from pyspark.sql.pandas.types import from_arrow_schema

import rmqpy
from pyspark_rocketmq import features, rows
from pyspark_rocketmq.features import ADMISSION, ARROW_STREAM_WRITER, FILTERS, Feature
from pyspark_rocketmq.offsets import Position, Queue
from pyspark_rocketmq.options import STREAM, Options
from pyspark_rocketmq.paced import PacedStream
from pyspark_rocketmq.progress import lag
from pyspark_rocketmq.schema import asked, default_schema
from pyspark_rocketmq.sink import TopicStreamWriter
from pyspark_rocketmq.source import RocketMQSource
from rmqpy.server import Standalone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

OFFERED = {"4.0": (), "4.1": (FILTERS, ARROW_STREAM_WRITER), "4.2": (FILTERS, ARROW_STREAM_WRITER, ADMISSION)}
OFFERED["4.3"] = OFFERED["4.2"]


def paced(server: Standalone, topic: str, **options: str) -> PacedStream:
    """A stream as Spark 4.0 and 4.1 have it, whichever version is installed."""
    given = {"nameserver": server.namesrv, "subscribe": topic, "offsetPollIntervalMs": "1"} | options
    return PacedStream(Options.parse(given, STREAM), asked(default_schema(with_properties=False)))


def send(producer: rmqpy.Producer, topic: str, count: int) -> None:
    queue = rmqpy.MessageQueue(topic, "broker-a", 0)
    for each in [producer.submit(topic, str(index), queue=queue) for index in range(count)]:
        each.result()


def end(offset: dict[str, Any]) -> int:
    (found,) = [at for queue, at in Position.of_json(offset).queues.items() if queue.queue_id == 0]
    return found


def count(reader: PacedStream, start: dict[str, Any], until: dict[str, Any]) -> int:
    return sum(batch.num_rows for task in reader.partitions(start, until) for batch in reader.read(task))


def logged(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset as it returns from Spark's log."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def test_the_installed_version_offers_what_apache_spark_does() -> None:
    expected = OFFERED[".".join(pyspark.__version__.split(".")[:2])]
    for feature in (FILTERS, ARROW_STREAM_WRITER, ADMISSION):
        assert feature.is_offered == (feature in expected), feature.name


def test_a_missing_feature_is_named_with_its_version() -> None:
    missing = Feature("filter push-down", "4.1", False)
    with pytest.raises(
        rmqpy.errors.ConfigError, match=r"option 'pushdown' needs filter push-down, which PySpark "
    ):
        missing.require("option 'pushdown'")
    Feature("filter push-down", "4.1", True).require("option 'pushdown'")


def test_pushdown_is_refused_where_spark_has_no_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_rocketmq.source.FILTERS", Feature("filter push-down", "4.1", False))
    source = RocketMQSource({"nameserver": "a:1", "subscribe": "t", "pushdown": "true"})
    with pytest.raises(rmqpy.errors.ConfigError, match=r"use Spark 4\.1 or newer"):
        source.reader(schema=default_schema(with_properties=False))


def test_a_paced_stream_continues_where_its_last_batch_ended(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 10)
    reader = paced(server, topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    # Spark asks for the end of the first batch before its start.
    first = reader.latestOffset()
    assert (end(first), count(reader, reader.initialOffset(), first)) == (4, 4)
    second = reader.latestOffset()
    assert (end(second), count(reader, first, second)) == (8, 4)
    third = reader.latestOffset()
    assert (end(third), count(reader, second, third)) == (10, 2)
    assert reader.latestOffset() is third
    assert Position.of_json(third).ends is None


def test_a_paced_stream_restarts_from_the_log(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 4)
    reader = paced(server, topic, maxOffsetsPerTrigger="3")
    start = reader.initialOffset()
    assert end(start) == 4
    send(producer, topic, 5)
    first = logged(reader.latestOffset())
    assert end(first) == 7
    # The sink failed in the first batch. Spark announces the log's last offset, and repeats the batch.
    again = paced(server, topic, maxOffsetsPerTrigger="3")
    assert again.partitions(first, first) == []
    assert end(again.initialOffset()) == 9
    assert count(again, again.initialOffset(), first) == 3
    second = again.latestOffset()
    assert (end(second), count(again, first, second)) == (9, 2)
    # After a complete batch, Spark only announces the offset.
    later = paced(server, topic, maxOffsetsPerTrigger="3")
    later.partitions(logged(second), logged(second))
    assert json.dumps(later.latestOffset()) == json.dumps(second)


def test_a_paced_stream_bounds_itself_on_request(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 10)
    reader = paced(server, topic, startingOffsets="earliest", maxOffsetsPerTrigger="6", availableNow="true")
    ends = [end(reader.latestOffset())]
    send(producer, topic, 7)
    ends += [end(reader.latestOffset()), end(reader.latestOffset())]
    assert ends == [6, 10, 10]


def test_a_bounded_stream_from_the_latest_message_may_begin_past_its_end(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    reader = paced(server, topic)
    reader.fix_end()
    send(producer, topic, 2)
    assert end(reader.initialOffset()) == 2
    assert end(reader.latestOffset()) == 2


def test_lag_of_a_limited_batch_comes_from_its_offset(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 10)
    reader = paced(server, topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    told = logged(reader.latestOffset())
    # Spark 4.0 and 4.1 report the end of the batch as the latest offset.
    progress = {"sources": [{"endOffset": told, "latestOffset": told}]}
    assert lag(progress)[Queue(topic, "broker-a", 0)] == 6


def sample() -> pyarrow.Table:
    """Columns of every type that the sink accepts, and of types that only identify a row."""
    moments = pyarrow.array([datetime(2026, month, 25, 1, 30, tzinfo=UTC) for month in (1, 7, 12)])
    moments = moments.cast(pyarrow.timestamp("us", "UTC"))
    text = pyarrow.string()
    return pyarrow.table(
        {
            "body": pyarrow.array([b"1", b"\xff", b""], pyarrow.binary()),
            "keys": pyarrow.array([["a", None], [], None], pyarrow.list_(text)),
            "properties": pyarrow.array([[("colour", "red")], [], None], pyarrow.map_(text, text)),
            "flag": pyarrow.array([1, None, 3], pyarrow.int32()),
            "deliverTimestamp": moments,
            "window": pyarrow.StructArray.from_arrays([moments, moments], ["start", "end"]),
            "price": pyarrow.array([1.5, None, 0.1]),
        }
    )


def spark_rows(table: pyarrow.Table) -> list[Any]:
    """The rows that Spark gives a row writer."""
    from pyspark.sql.conversion import ArrowTableToRowsConversion

    return list(ArrowTableToRowsConversion.convert(table, from_arrow_schema(table.schema)))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_rows_and_batches_give_a_writer_the_same(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    # Rows have local times.
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        table = sample()
        schema = from_arrow_schema(table.schema)
        (batch,) = table.to_batches()
        (converted,) = rows.batches(iter(spark_rows(table)), schema)
        assert converted.to_pydict() == batch.to_pydict()
        (same,) = rows.batches(iter([batch]), schema)
        assert same is batch
        assert list(rows.batches(iter([]), schema)) == []
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_stream_writer_gives_rows_the_ids_of_batches(
    server: Standalone, topic: str, received: Callable[..., list[rmqpy.ReceivedMessage]]
) -> None:
    table = sample().select(["body", "window", "price"]).slice(0, 2)
    options = Options.parse(
        {"nameserver": server.namesrv, "topic": topic, "idempotencyKey": "window,price"}, "W"
    )
    writer = TopicStreamWriter(options, from_arrow_schema(table.schema))
    writer.write(iter(table.to_batches()))
    writer.write(iter(spark_rows(table)))
    messages = received()
    assert len(messages) == 4
    assert len({(message.body, message.message_id) for message in messages}) == 2


def test_the_stream_writer_without_arrow_is_a_writer_of_both_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter", raising=False)
    module = importlib.util.module_from_spec(features.__spec__)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, features.__name__, module)
    features.__spec__.loader.exec_module(module)  # type: ignore[union-attr]
    assert not module.ARROW_STREAM_WRITER.is_offered
    assert issubclass(module.ArrowStreamWriter, datasource.DataSourceStreamWriter)
    assert issubclass(module.ArrowStreamWriter, datasource.DataSourceArrowWriter)


@pytest.mark.parametrize("limit", [None, "4"])
def test_a_bounded_query_ends_where_the_topic_ended(
    limit: str | None,
    spark: "SparkSession",
    server: Standalone,
    producer: rmqpy.Producer,
    topic: str,
    tmp_path: Path,
) -> None:
    send(producer, topic, 10)
    sizes: list[int] = []

    def store(df: "DataFrame", batch_id: int) -> None:
        sizes.append(df.count())
        if batch_id == 0:
            send(producer, topic, 3)

    def run() -> None:
        options = {"nameserver": server.namesrv, "subscribe": topic, "startingOffsets": "earliest"}
        reader = spark.readStream.format("rocketmq").options(**options).option("availableNow", "true")
        if limit is not None:
            reader = reader.option("maxOffsetsPerTrigger", limit)
        writer = reader.load().writeStream.foreachBatch(store)
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    run()
    assert sizes == ([10] if limit is None else [4, 4, 2])
    run()
    assert sum(sizes) == 13
