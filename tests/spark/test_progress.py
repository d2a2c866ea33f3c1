"""Lag of a query, from the progress Spark reports."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rmqpy
from pyspark_rocketmq.offsets import Position, Queue
from pyspark_rocketmq.progress import LagListener, Report, lag
from rmqpy.server import Standalone
from waiting import until

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
def test_lag_counts_unread_messages(sources: list[dict[str, Any]], expected: dict[Queue, int]) -> None:
    assert lag({"sources": sources}) == expected
    assert lag(json.dumps({"sources": sources})) == expected


class Dictionary(dict[str, Any]):
    """A progress as Spark 4.0 and 4.1 have it: offsets are texts of Python, and only `json` is JSON."""

    @property
    def json(self) -> str:
        return json.dumps({"sources": [source({A: 3}, {A: 10})]})


def test_lag_reads_the_json_of_a_progress_that_is_a_dictionary() -> None:
    assert lag(Dictionary(sources=[{"endOffset": "{'v': 1}", "latestOffset": "{'v': 1}"}])) == {A: 7}


def test_lag_is_absent_before_the_first_progress() -> None:
    assert lag(None) == {}


def test_a_listener_reports_each_batch_and_stores_its_end(
    spark: "SparkSession",
    server: Standalone,
    producer: rmqpy.Producer,
    topic: str,
    run_available: Callable[[Any], Any],
    tmp_path: Path,
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
        query = run_available(writer)
        with rmqpy.Catalog(server.namesrv) as catalog:
            until(lambda: len(reports) >= 2)
            until(lambda: catalog.committed(f"lag-{topic}", [queue]) == {queue: 6})
    finally:
        spark.streams.removeListener(listener)
    assert [(each.behind_min, each.behind_max) for each in reports[:2]] == [(0, 2), (0, 0)]
    assert lag(query.lastProgress)[Queue(*queue)] == 0


def test_observed_metrics_of_the_page(
    spark: "SparkSession", server: Standalone, producer: rmqpy.Producer, topic: str, tmp_path: Path
) -> None:
    """The program of the page that reports how old the newest message is."""
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    (program,) = (
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if ".observe(" in block
    )
    for number in range(5):
        producer.send(topic, str(number))
    given = spark.readStream.format("rocketmq").options(
        nameserver=server.namesrv, subscribe=topic, startingOffsets="earliest"
    )
    defined: dict[str, Any] = {"stream": given.load()}
    exec(compile(program.replace("checkpoints/", f"{tmp_path}/"), "spark.md", "exec"), defined)
    (found,) = [
        progress.observedMetrics["read"]
        for progress in defined["query"].recentProgress
        if progress.observedMetrics and progress.observedMetrics["read"]["rows"]
    ]
    assert found["rows"] == 5
    assert found["newest"] is not None
