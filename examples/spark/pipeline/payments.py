"""A declarative pipeline: payments of a topic become a table, its totals, and messages about the large ones.

`spark-pipelines` runs this file. `python examples/spark/pipelines.py` starts a broker and runs it.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()
nameserver = spark.conf.get("spark.payments.nameserver")


@dp.table
def payments() -> DataFrame:
    """Payments, appended by each run."""
    messages = (
        spark.readStream.format("rocketmq")
        .option("nameserver", nameserver)
        .option("subscribe", "payments")
        .option("startingOffsets", "earliest")
        .schema("body string, storeTimestamp timestamp")
        .load()
    )
    payment = f.from_json("body", "customer string, euro int").alias("payment")
    return messages.select(payment, "storeTimestamp").select("payment.*", "storeTimestamp")


@dp.materialized_view
def totals() -> DataFrame:
    """The total of each customer."""
    return spark.read.table("payments").groupBy("customer").agg(f.sum("euro").alias("euro"))


dp.create_sink("large_payments", "rocketmq", {"nameserver": nameserver, "topic": "large-payments"})


@dp.append_flow(target="large_payments")
def large() -> DataFrame:
    """Messages about payments of 150 euro and more."""
    large = spark.readStream.table("payments").where("euro >= 150")
    return large.select(f.to_json(f.struct("customer", "euro")).alias("body"))
