"""RocketMQ topics as Spark tables.

    df = spark.read.format("rocketmq").option("nameserver", "127.0.0.1:9876").option("subscribe", "orders").load()

Spark looks through every top-level module named `pyspark_*` for a class `DefaultSource`, so the format needs no
registration where this package is installed on the driver and the executors. One such module that fails to import
switches discovery off for all of them: this one never raises, and has no `DefaultSource` where Spark is too old.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def __getattr__(name: str) -> Any:
    # PySpark is imported when Spark, or a user, asks for the source, and not before.
    if name == "DefaultSource":
        try:
            from pyspark_rocketmq.source import RocketMQSource
        except ImportError as error:
            raise AttributeError(
                f"pyspark_rocketmq needs pyspark 4.2 or newer, pyarrow and rmqpy: {error}"
            ) from error
        return RocketMQSource
    raise AttributeError(f"module 'pyspark_rocketmq' has no attribute {name!r}")


def register(spark: "SparkSession") -> None:
    """Make `format("rocketmq")` known to a session that did not discover it, for instance because another
    `pyspark_*` package fails to import. Harmless where it is known already."""
    from pyspark_rocketmq.source import RocketMQSource

    spark.dataSource.register(RocketMQSource)
