"""RocketMQ topics as Spark tables.

    df = spark.read.format("rocketmq").option("nameserver", "127.0.0.1:9876").option("subscribe", "orders").load()

Spark imports every top-level module named `pyspark_*` and takes its class `DefaultSource`, so the format needs no
registration where this package is installed. One such module that raises disables discovery for all of them, so this
module never raises on import, and has no `DefaultSource` where Spark is older than 4.0.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_rocketmq.jvm import jar, real_time

__all__ = ["jar", "real_time", "register"]


def __getattr__(name: str) -> Any:
    # Importing this package does not import PySpark; looking up the source does.
    if name == "DefaultSource":
        try:
            return _source()
        except ImportError as error:
            raise AttributeError(str(error)) from error
    if name in ("jar", "real_time"):
        from pyspark_rocketmq import jvm

        return getattr(jvm, name)
    raise AttributeError(f"module 'pyspark_rocketmq' has no attribute {name!r}")


def _source() -> Any:
    try:
        from pyspark_rocketmq.source import RocketMQSource
    except ImportError as error:
        raise ImportError(
            f"pyspark_rocketmq needs pyspark 4.0 or newer, pyarrow and rmqpy: {error}"
        ) from error
    return RocketMQSource


def register(spark: "SparkSession") -> None:
    """Register `format("rocketmq")` with a session that did not discover it, for instance because another `pyspark_*`
    package fails to import. Registering it again is harmless."""
    source = _source()
    try:
        spark.dataSource.register(source)
    except Exception as error:
        # Spark 4.0 refuses a known name; later versions replace it.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
