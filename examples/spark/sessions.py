"""Visits of customers, kept in Spark's state: `transformWithState` with a timer for each visit.

    python examples/spark/sessions.py

A visit ends when its customer does nothing for five minutes. State and timers are in the checkpoint, together with
the offsets of the topic, so a restarted query counts each click once. The query runs twice here, and the second run
goes on with the state of the first. Needs Spark 4.1, pandas and protobuf.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from here import everything, send
from pyspark.sql import Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "page-views"
BEGIN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
GAP_MS = 5 * 60 * 1000
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Visits(StatefulProcessor):
    """The open visit of each customer: its first and last click, and how many there were."""

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self._handle = handle
        self._visit = handle.getValueState("visit", "first_ms bigint, last_ms bigint, clicks bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Add clicks to the visit, and move its end. A click after its end begins another visit."""
        first_ms, last_ms, clicks = self._visit.get() if self._visit.exists() else (0, 0, 0)
        if clicks:
            self._handle.deleteTimer(last_ms + GAP_MS)
        for at_ms in sorted(row.at_ms for row in rows):
            if clicks and at_ms > last_ms + GAP_MS:
                yield _ended(key, first_ms, last_ms, clicks)
                clicks = 0
            first_ms = min(first_ms, at_ms) if clicks else at_ms
            last_ms = max(last_ms, at_ms) if clicks else at_ms
            clicks += 1
        self._visit.update((first_ms, last_ms, clicks))
        self._handle.registerTimer(last_ms + GAP_MS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Emit the visit that has ended."""
        first_ms, last_ms, clicks = self._visit.get()
        self._visit.clear()
        yield _ended(key, first_ms, last_ms, clicks)

    def close(self) -> None:
        """Nothing to release."""


def _ended(key: Any, first_ms: int, last_ms: int, clicks: int) -> Row:
    return Row(customer=key[0], seconds=(last_ms - first_ms) // 1000, clicks=clicks)


def click(second: int, customer: str) -> str:
    """Return the body of a click."""
    return json.dumps({"at": (BEGIN + timedelta(seconds=second)).isoformat(), "customer": customer})


def main(spark: "SparkSession", namesrv: str, folder: Path) -> list[tuple[str, int, int]]:
    """Follow visits. Returns those that have ended: customer, seconds, number of clicks."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)

    def run() -> None:
        clicks = (
            spark.readStream.format("rocketmq")
            .option("nameserver", namesrv)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("bodyFormat", "json")
            .option("bodySchema", "at timestamp, customer string")
            .load()
            .select("body.at", "body.customer", f.unix_millis("body.at").alias("at_ms"))
        )
        visits = (
            clicks.withWatermark("at", "1 minute")
            .groupBy("customer")
            .transformWithState(
                Visits(), "customer string, seconds bigint, clicks bigint", "append", "eventTime"
            )
        )
        query = (
            visits.writeStream.format("parquet")
            .option("path", str(folder / "visits"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .outputMode("append")
            .start()
        )
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    send(
        namesrv,
        TOPIC,
        [click(second, customer) for second in range(0, 60, 10) for customer in ("ann", "bob")],
    )
    run()
    # Ann goes on, Bob comes back later, and Eve's click moves the watermark past the ends of their visits.
    send(namesrv, TOPIC, [click(90, "ann"), click(600, "bob"), click(3600, "eve")])
    run()
    rows = spark.read.parquet(str(folder / "visits")).orderBy("customer", "clicks").collect()
    for row in rows:
        print(f"{row.customer}: {row.clicks} clicks in {row.seconds} seconds")
    return [(row.customer, row.seconds, row.clicks) for row in rows]


if __name__ == "__main__":
    with TemporaryDirectory() as scratch, everything() as (session, address):
        main(session, address, Path(scratch))
