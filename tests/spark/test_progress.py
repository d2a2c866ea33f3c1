"""Lag of a query, from the progress Spark reports."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rmqpy
from pyspark_rocketmq.offsets import Position, Queue
from pyspark_rocketmq.progress import LagListener, Report, lag
from rmqpy.server import Standalone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

A, B = Queue("t", "a", 0), Queue("t", "a", 1)


def source(read: dict[Queue, int] | None, latest: dict[Queue, int]) -> dict[str, Any]:
    told = None if read is None else Position(read).to_json()
    return {"startOffset": None, "endOffset": told, "latestOffset": Position(latest).to_json()}


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([source({A: 3, B: 9}, {A: 10, B: 9})], {A: 7, B: 0}),
        # A queue that has just appeared.
        ([source({A: 3}, {A: 3, B: 5})], {A: 0, B: 5}),
        # The first progress, and sources of others.
        ([source(None, {A: 3})], {}),
        ([{"endOffset": 7, "latestOffset": 9}, {"endOffset": {"topic": {"0": 1}}, "latestOffset": "x"}], {}),
        ([], {}),
    ],
)
def test_lag_is_what_lies_beyond_what_was_read(
    sources: list[dict[str, Any]], expected: dict[Queue, int]
) -> None:
    assert lag({"sources": sources}) == expected
    assert lag(json.dumps({"sources": sources})) == expected


def test_there_is_no_lag_before_the_first_progress() -> None:
    assert lag(None) == {}


def test_a_listener_reports_each_batch_and_stores_its_end(
    spark: "SparkSession", server: Standalone, producer: rmqpy.Producer, topic: str, tmp_path: Path
) -> None:
    queue = rmqpy.MessageQueue(topic, "broker-a", 0)
    for number in range(6):
        producer.send(topic, str(number), queue=queue)
    reports: list[Report] = []
    listener = LagListener(reports.append, group=f"lag-{topic}", namesrv=server.namesrv)
    spark.streams.addListener(listener)

    def read(df: "DataFrame", batch_id: int) -> None:
        df.collect()

    try:
        stream = spark.readStream.format("rocketmq").options(
            nameserver=server.namesrv,
            subscribe=topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=4,
            consumerGroup=f"lag-{topic}",
        )
        writer = stream.load().writeStream.foreachBatch(read).option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        with rmqpy.Catalog(server.namesrv) as catalog:
            deadline = time.monotonic() + 30
            while len(reports) < 2 or catalog.committed(f"lag-{topic}", [queue]) != {queue: 6}:
                assert time.monotonic() < deadline, reports
                time.sleep(0.02)
    finally:
        spark.streams.removeListener(listener)
    assert [(each.behind_min, each.behind_max) for each in reports[:2]] == [(0, 2), (0, 0)]
    assert lag(query.lastProgress)[Queue(*queue)] == 0
