"""A watched stream: its progress, lag and throughput in Spark, in the console, and on the board "rmqpy: Spark streams".

    python examples/spark/watched.py

`LagListener` commits the position of the stream under its consumer group after each micro-batch. The group then appears
at http://127.0.0.1:8082/#/groups/spark-orders and in /metrics. `rmqpy dashboard --grafana FOLDER` writes the boards.
This program prints the figures of all three after each micro-batch. Needs Spark 4.2.
"""

import json
import re
import threading
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from here import everything, send

import rmqpy
from pyspark_rocketmq.progress import LagListener, Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC, GROUP = "orders-to-watch", "spark-orders"
ORDERS, BATCH = 200, 80
HTTP_PORT = 8082


class Seen(NamedTuple):
    """Figures while the stream is paused: unread rows in Spark, in the console and on the board, and read rows."""

    spark: float
    console: int
    board: int
    read: int


def main(spark: "SparkSession", namesrv: str, http: str, folder: Path) -> list[Seen]:
    """Read orders in batches, and collect the figures after each."""
    with rmqpy.Admin(namesrv) as admin:
        admin.create_topic(TOPIC, read_queues=1, write_queues=1)
        admin.create_group(GROUP)
    send(namesrv, TOPIC, [f"order {number}" for number in range(ORDERS)])
    seen: list[Seen] = []
    looked = threading.Semaphore(1)

    def take(rows: "DataFrame", batch: int) -> None:
        # Pauses the stream, so that all three show the same batch. Streams do not wait for listeners.
        looked.acquire(timeout=60)
        rows.count()

    def look(report: Report) -> None:
        seen.append(
            Seen(
                report.behind_max,
                in_console(http),
                on_board(http, "rocketmq_consumer_lag_messages"),
                on_board(http, "rocketmq_messages_out_total"),
            )
        )
        looked.release()

    # Spark calls listeners in this order: the first commits the position before the second reads it.
    listeners = LagListener(group=GROUP, namesrv=namesrv), LagListener(look)
    for listener in listeners:
        spark.streams.addListener(listener)
    query = (
        spark.readStream.format("rocketmq")
        .option("nameserver", namesrv)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("consumerGroup", GROUP)
        .option("maxOffsetsPerTrigger", str(BATCH))
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination(120)
        # The report on the last batch arrives later.
        looked.acquire(timeout=60)
    finally:
        query.stop()
        for listener in listeners:
            spark.streams.removeListener(listener)
    for each in seen:
        print(
            f"wait: {each.spark:3.0f} Spark, {each.console:3} console, {each.board:3} board; read {each.read}"
        )
    return seen


def in_console(http: str) -> int:
    """Return the unread rows on the page of the group in the console."""
    with urllib.request.urlopen(f"http://{http}/api/v1/groups/{GROUP}", timeout=30) as answer:
        return sum(queue["lag"] for queue in json.load(answer)["progress"])


def on_board(http: str, metric: str) -> int:
    """Return a metric of the group on the board."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(rf'^{metric}{{[^}}]*consumer_group="{GROUP}"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return round(sum(map(float, found)))


if __name__ == "__main__":
    with TemporaryDirectory() as scratch, everything(http_port=HTTP_PORT) as (session, address):
        main(session, address, f"127.0.0.1:{HTTP_PORT}", Path(scratch))
