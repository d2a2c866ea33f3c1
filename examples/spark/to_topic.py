"""From topic to topic: copy large payments, with ids that survive a crash.

    python examples/spark/to_topic.py

After a crash, the query sends its last batch again with the same message ids, so a reader can drop the duplicates, in
Spark with `dropDuplicatesWithinWatermark(["msgId"])`.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from here import everything, send, until_known
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE, TARGET = "payments", "large-payments"


def main(spark: "SparkSession", namesrv: str, folder: Path) -> int:
    """Copy large payments. Returns their number."""
    send(namesrv, SOURCE, [json.dumps({"customer": f"c-{n % 7}", "euro": n}) for n in range(200)])

    payments = (
        spark.readStream.format("rocketmq")
        .option("nameserver", namesrv)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .schema("body string, keys string")
        .load()
    )
    payment = f.from_json("body", "customer string, euro int")
    large = payments.where(payment.euro >= 150).select("body", payment.customer.alias("shardingKey"))
    query = (
        large.writeStream.format("rocketmq")
        .option("nameserver", namesrv)
        .option("topic", TARGET)
        .option("createTopic", "true")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    until_known(namesrv, TARGET)
    arrived = (
        spark.read.format("rocketmq").option("nameserver", namesrv).load(TARGET).dropDuplicates(["msgId"])
    )
    count = arrived.count()
    arrived.selectExpr("queueId", "msgId", "cast(body as string) as body").orderBy("body").show(
        3, truncate=False
    )
    print(f"{count} payments of 150 euro and more")
    return count


if __name__ == "__main__":
    with TemporaryDirectory() as scratch, everything() as (session, address):
        main(session, address, Path(scratch))
