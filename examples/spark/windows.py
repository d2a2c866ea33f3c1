"""Orders per minute and country, counted while their topic grows.

    python examples/spark/windows.py

Each message has the time of its order. A watermark closes a window once orders arrive that are two minutes newer. The
appended counts are final. One order arrives too late and is left out.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from here import everything, send
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "orders"
BEGIN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def order(second: int, country: str) -> str:
    """Return the body of an order."""
    return json.dumps({"at": (BEGIN + timedelta(seconds=second)).isoformat(), "country": country})


def main(spark: "SparkSession", namesrv: str, folder: Path) -> list[tuple[str, str, int]]:
    """Count orders. Returns the appended rows: start of the window, country, number of orders."""
    send(namesrv, TOPIC, [order(second, "FR" if second % 3 else "DE") for second in range(0, 120, 2)])

    orders = (
        spark.readStream.format("rocketmq")
        .option("nameserver", namesrv)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .schema("body string")
        .load()
        .select(f.from_json("body", "at timestamp, country string").alias("order"))
        .select("order.*")
    )
    counted = orders.withWatermark("at", "2 minutes").groupBy(f.window("at", "1 minute"), "country").count()
    query = (
        counted.writeStream.format("memory")
        .queryName("per_minute")
        .outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        # These orders move the watermark past the first two minutes.
        send(namesrv, TOPIC, [order(second, "FR") for second in range(300, 310)])
        query.processAllAvailable()
        # This order is too late for its window.
        send(namesrv, TOPIC, [order(1, "IT")])
        query.processAllAvailable()
        rows = spark.table("per_minute").orderBy("window.start", "country").collect()
    finally:
        query.stop()
    for row in rows:
        print(f"{row.window.start:%H:%M}  {row.country}  {row['count']:3}")
    return [(f"{row.window.start:%H:%M}", row.country, row["count"]) for row in rows]


if __name__ == "__main__":
    with TemporaryDirectory() as scratch, everything() as (session, address):
        main(session, address, Path(scratch))
