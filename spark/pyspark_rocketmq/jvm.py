"""Format `rocketmq-jvm`: its jar, and the trigger of Real-time Mode.

The format runs in Spark's JVM, because Spark offers Real-time Mode to sources there only. Its Java sources are next to
this package, in `java`.
"""

from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: The name for `format`.
FORMAT: Final = "rocketmq-jvm"
#: Built where there is a Java compiler.
JAR: Final = Path(__file__).with_name("rocketmq-jvm.jar")


def jar() -> str:
    """Return the path of the jar, for `spark.jars`. Raises `ConfigError` if this installation has none."""
    if not JAR.is_file():
        raise ConfigError(
            f"this installation has no jar of format {FORMAT!r}: no Java compiler was found when it was built",
            hint="install a wheel that has it, or a JDK 17 or newer, and build the connector again",
        )
    return str(JAR)


def real_time(writer: "DataStreamWriter", duration: str) -> "DataStreamWriter":
    """Set the trigger of Real-time Mode: Spark writes a checkpoint every `duration`, such as `5 minutes`.

    The same as `writer.trigger(realTime=duration)`, which PySpark has since 4.2, with the log of progress written in
    step: Spark 4.3 writes it asynchronously by default, and refuses sinks of other projects then. Raises `ConfigError`
    if Spark is older than 4.1, which introduced the mode.
    """
    writer = writer.option("asyncProgressTrackingEnabled", "false")
    if "realTime" in signature(writer.trigger).parameters:
        return writer.trigger(realTime=duration)  # type: ignore[call-overload, no-any-return]
    trigger = writer._spark._jvm.org.apache.spark.sql.streaming.Trigger  # type: ignore[union-attr]
    if not hasattr(trigger, "RealTime"):
        raise ConfigError("Real-time Mode needs Spark 4.1 or newer")
    writer._jwrite = writer._jwrite.trigger(trigger.RealTime(duration))
    return writer
