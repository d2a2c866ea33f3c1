"""A program of a Spark Connect client: reads, writes and streams topics through a server on this machine.

Never imports the connector, which only the server needs. Prints its results as JSON.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(namesrv: str, topic: str, copy: str, folder: Path) -> None:
    builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    read = spark.read.format("rocketmq").option("nameserver", namesrv)
    spark.range(20).selectExpr("cast(id as string) as body", "'new' as tags").write.format("rocketmq").mode(
        "append"
    ).option("nameserver", namesrv).save(topic)
    found = {"read": read.load(topic).where("tags = 'new'").count()}
    stream = spark.readStream.format("rocketmq").option("nameserver", namesrv)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest")
    query = (
        stream.load()
        .select("body")
        .writeStream.format("rocketmq")
        .option("nameserver", namesrv)
        .option("topic", copy)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(240)
    if (failure := query.exception()) is not None:
        raise failure
    found["copied"] = read.load(copy).count()
    # The table of a catalogue, as SQL users have it.
    spark.sql(
        f"CREATE TEMPORARY VIEW copied USING rocketmq OPTIONS (nameserver '{namesrv}', subscribe '{copy}')"
    )
    found["sql"] = spark.sql("SELECT count(DISTINCT string(body)) FROM copied").collect()[0][0]
    found["imports"] = int("pyspark_rocketmq.source" in sys.modules)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
