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
def start(spark: "SparkSession", server: Standalone, topic: str, tmp_path: Path) -> Iterator[Start]:
    """`start(options, sink, availableNow=True)`: a query over the test's topic, stopped when the test ends."""
    running = []

    def start(
        sink: Callable[["DataFrame", int], None], trigger: dict[str, Any] | None = None, **options: str
    ) -> Any:
        reader = spark.readStream.format("rocketmq").options(
            **{"nameserver": server.namesrv, "subscribe": topic, "startingOffsets": "earliest"} | options
        )
        writer = (
            reader.load().writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "cp"))
        )
        query = (writer.trigger(**trigger) if trigger else writer).start()
        running.append(query)
        return query

    yield start
    for query in running:
        query.stop()


class Sink:
    """Keeps what it got, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, df: "DataFrame", batch_id: int) -> None:
        self.batches.append(sorted(int(bytes(row.body)) for row in df.select("body").collect()))


def test_available_now_takes_limited_batches_and_a_second_run_only_what_is_new(
    start: Start, producer: rmqpy.Producer, topic: str
) -> None:
    now = {"availableNow": True}
    send(producer, topic, 10)
    sink = Sink()
    query = start(sink, now, maxOffsetsPerTrigger="4")
    assert query.awaitTermination(60)
    assert sink.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    progress = query.recentProgress[-1].json
    assert json.loads(progress)["sources"][0]["latestOffset"]["queues"][topic]["broker-a"]["0"] == 10
    send(producer, topic, 3)
    sink = Sink()
    assert start(sink, now, maxOffsetsPerTrigger="4").awaitTermination(60)
    assert sink.batches == [[0, 1, 2]]


def test_a_running_query_gets_what_is_sent_while_it_runs(
    start: Start, producer: rmqpy.Producer, topic: str
) -> None:
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
    assert start(sink, {"availableNow": True}).awaitTermination(60)
    assert sink.batches == [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
