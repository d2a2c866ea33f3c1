"""Orders without a payment in ten minutes: a join of two streams, with watermarks on both.

    python examples/spark/joined.py

Both topics are read with the same checkpoint. An order waits in Spark's state for its payment, until the watermark
says that none can come any more. Then the outer join emits it without one.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from here import everything, send
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS, PAYMENTS = "orders-to-pay", "payments-of-orders"
BEGIN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def body(number: int, minute: int) -> str:
    """Return the body of an order or a payment."""
    return json.dumps({"number": number, "at": (BEGIN + timedelta(minutes=minute)).isoformat()})


def main(spark: "SparkSession", namesrv: str, folder: Path) -> list[tuple[int, bool]]:
    """Join orders and payments. Returns the emitted orders, and whether each is paid."""

    def stream(topic: str, prefix: str) -> "DataFrame":
        return (
            spark.readStream.format("rocketmq")
            .option("nameserver", namesrv)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("bodyFormat", "json")
            .option("bodySchema", "number int, at timestamp")
            .load()
            .select(f.col("body.number").alias(f"{prefix}_number"), f.col("body.at").alias(f"{prefix}_at"))
            .withWatermark(f"{prefix}_at", "1 minute")
        )

    send(namesrv, ORDERS, [body(number, number) for number in range(6)])
    send(namesrv, PAYMENTS, [body(number, number + 2) for number in range(0, 6, 2)])
    within = (
        "payment_number = order_number AND payment_at BETWEEN order_at AND order_at + INTERVAL 10 MINUTES"
    )
    joined = stream(ORDERS, "order").join(stream(PAYMENTS, "payment"), f.expr(within), "leftOuter")
    query = (
        joined.select("order_number", f.col("payment_number").isNotNull().alias("paid"))
        .writeStream.format("memory")
        .queryName("joined")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        # The watermark of a query is that of its slower stream: both move past the ten minutes of the orders.
        send(namesrv, ORDERS, [body(100, 60)])
        send(namesrv, PAYMENTS, [body(100, 60)])
        query.processAllAvailable()
        rows = spark.table("joined").where("order_number < 100").orderBy("order_number").collect()
    finally:
        query.stop()
    for row in rows:
        print(f"order {row.order_number}: {'paid' if row.paid else 'not paid'}")
    return [(row.order_number, row.paid) for row in rows]


if __name__ == "__main__":
    with TemporaryDirectory() as scratch, everything() as (session, address):
        main(session, address, Path(scratch))
