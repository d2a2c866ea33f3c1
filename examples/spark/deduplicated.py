"""Each order once, although some of them were sent twice.

    python examples/spark/deduplicated.py

Spark's sink sends rows again after a crash, with the same `msgId`, and so does a producer that repeats a send after a
timeout. `dropDuplicatesWithinWatermark` keeps the ids of the last ten minutes as state, in the checkpoint, and
lets each pass once, also when the copies come in different micro-batches.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from here import everything, until_known

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "repeated-orders"


def send(spark: "SparkSession", namesrv: str, first: int, last: int) -> None:
    """Send orders, each with its own id."""
    orders = spark.range(first, last).selectExpr(
        "concat('order ', id) as body", "lpad(hex(id), 32, '0') as msgId"
    )
    writer = orders.write.format("rocketmq").mode("append").option("nameserver", namesrv)
    writer.option("createTopic", "true").save(TOPIC)
    until_known(namesrv, TOPIC)


def main(spark: "SparkSession", namesrv: str, folder: Path) -> list[str]:
    """Copy orders. Returns their texts."""
    stream = (
        spark.readStream.format("rocketmq")
        .option("nameserver", namesrv)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .schema("msgId string, storeTimestamp timestamp, body string")
    )
    send(spark, namesrv, 0, 20)
    once = (
        stream.load().withWatermark("storeTimestamp", "10 minutes").dropDuplicatesWithinWatermark(["msgId"])
    )
    query = (
        once.select("body")
        .writeStream.format("memory")
        .queryName("once")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        # The second half again, and new ones.
        send(spark, namesrv, 10, 30)
        query.processAllAvailable()
        texts = [row.body for row in spark.table("once").orderBy("body").collect()]
    finally:
        query.stop()
    print(f"{len(texts)} orders, {len(set(texts))} different ones")
    return texts


if __name__ == "__main__":
    with TemporaryDirectory() as scratch, everything() as (session, address):
        main(session, address, Path(scratch))
