"""A stream whose progress, lag and throughput are seen in the console, and on the board "rmqpy: Spark streams".

    python examples/spark/watched.py

Brokers know of a stream what it commits: `LagListener` stores its place under the group that it reads with, after each
micro-batch. From then on it is a group as any other, at http://127.0.0.1:8082/#/groups/spark-orders and in /metrics, of
which `rmqpy dashboard --grafana FOLDER` writes the boards. This prints, batch by batch, what each of the three says.
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
    """One look while the stream stands still: rows that wait, by Spark, the console and the board; rows read."""

    spark: float
    console: int
    board: int
    read: int


def main(spark: "SparkSession", namesrv: str, http: str, folder: Path) -> list[Seen]:
    """Read the orders in batches, and look after each."""
    with rmqpy.Admin(namesrv) as admin:
        admin.create_topic(TOPIC, read_queues=1, write_queues=1)
        admin.create_group(GROUP)
    send(namesrv, TOPIC, [f"order {number}" for number in range(ORDERS)])
    seen: list[Seen] = []
    looked = threading.Semaphore(1)

    def take(rows: "DataFrame", batch: int) -> None:
        # Only so that all three look at the same: a stream does not wait for those who watch it.
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

    # In the order they are told: the place of the batch is stored before it is looked at.
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
        # What is told of the last batch comes a moment later.
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
    """Rows that wait, as the console's page of the group shows them."""
    with urllib.request.urlopen(f"http://{http}/api/v1/groups/{GROUP}", timeout=30) as answer:
        return sum(queue["lag"] for queue in json.load(answer)["progress"])


def on_board(http: str, metric: str) -> int:
    """What the board draws of the group."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(rf'^{metric}{{[^}}]*consumer_group="{GROUP}"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return round(sum(map(float, found)))


if __name__ == "__main__":
    with TemporaryDirectory() as scratch, everything(http_port=HTTP_PORT) as (session, address):
        main(session, address, f"127.0.0.1:{HTTP_PORT}", Path(scratch))
