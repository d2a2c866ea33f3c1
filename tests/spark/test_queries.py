"""Streaming queries in a session, over a topic of a real broker."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import rmqpy
from rmqpy.server import Standalone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)


Start = Callable[..., Any]


def send(producer: rmqpy.Producer, topic: str, count: int, queue_id: int = 0) -> None:
    queue = rmqpy.MessageQueue(topic, "broker-a", queue_id)
    for each in [producer.submit(topic, str(index), queue=queue) for index in range(count)]:
        each.result()


@pytest.fixture
def start(
    spark: "SparkSession", server: Standalone, topic: str, run_available: Callable[[Any], Any], tmp_path: Path
) -> Iterator[Start]:
    """`start(sink, option=value, ...)`: a query over the test's topic, stopped when the test ends. With `is_bounded` it
    ends after the messages that exist now."""
    running = []

    def start(sink: Callable[["DataFrame", int], None], *, is_bounded: bool = False, **options: str) -> Any:
        reader = spark.readStream.format("rocketmq").options(
            **{"nameserver": server.namesrv, "subscribe": topic, "startingOffsets": "earliest"} | options
        )
        writer = (
            reader.load().writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "cp"))
        )
        query = run_available(writer) if is_bounded else writer.start()
        running.append(query)
        return query

    yield start
    for query in running:
        query.stop()


class Sink:
    """Keeps its rows, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, df: "DataFrame", batch_id: int) -> None:
        self.batches.append(sorted(int(bytes(row.body)) for row in df.select("body").collect()))


def test_available_now_reads_limited_batches_and_reruns_only_new_messages(
    start: Start, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 10)
    sink = Sink()
    query = start(sink, is_bounded=True, maxOffsetsPerTrigger="4")
    assert sink.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    progress = query.recentProgress[-1].json
    assert json.loads(progress)["sources"][0]["latestOffset"]["queues"][topic]["broker-a"]["0"] == 10
    send(producer, topic, 3)
    sink = Sink()
    start(sink, is_bounded=True, maxOffsetsPerTrigger="4")
    assert sink.batches == [[0, 1, 2]]


def test_running_query_receives_new_messages(start: Start, producer: rmqpy.Producer, topic: str) -> None:
    sink = Sink()
    query = start(sink)
    for queue_id in range(3):
        send(producer, topic, 5, queue_id)
        query.processAllAvailable()
    assert sorted(number for batch in sink.batches for number in batch) == sorted([0, 1, 2, 3, 4] * 3)


def test_a_failed_batch_is_repeated_with_the_same_messages(
    start: Start, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 4)

    def failing(df: "DataFrame", batch_id: int) -> None:
        raise RuntimeError("the sink is full")

    with pytest.raises(StreamingQueryException, match="the sink is full"):
        start(failing).awaitTermination(60)
    send(producer, topic, 6)
    sink = Sink()
    start(sink, is_bounded=True)
    assert sink.batches == [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
