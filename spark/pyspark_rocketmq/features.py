"""Features of the installed PySpark: the only module that knows how Spark 4.0 to 4.3 differ.

A feature is found by its name in PySpark's API, never by a version number, because vendors backport features.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import datasource

from rmqpy.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Feature:
    """A part of Spark's Python data source API that older versions lack."""

    name: str
    #: The first version of Apache Spark with this feature.
    since: str
    is_offered: bool

    def require(self, user: str) -> None:
        """Raise `ConfigError` if `user`, such as an option, cannot work without this feature."""
        if not self.is_offered:
            raise ConfigError(
                f"{user} needs {self.name}, which PySpark {pyspark.__version__} lacks",
                hint=f"use Spark {self.since} or newer",
            )


FILTERS: Final = Feature("filter push-down", "4.1", hasattr(datasource, "EqualTo"))
ARROW_STREAM_WRITER: Final = Feature(
    "DataSourceStreamArrowWriter", "4.1", hasattr(datasource, "DataSourceStreamArrowWriter")
)
#: Read limits, `Trigger.AvailableNow` and the latest offset in progress reports arrived together.
ADMISSION: Final = Feature(
    "SupportsTriggerAvailableNow", "4.2", find_spec("pyspark.sql.streaming.datasource") is not None
)

if TYPE_CHECKING or ARROW_STREAM_WRITER.is_offered:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as ArrowStreamWriter
else:

    class ArrowStreamWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """A stream writer that Spark 4.0 gives Arrow batches, as it does for any `DataSourceArrowWriter`."""


__all__ = ["ADMISSION", "ARROW_STREAM_WRITER", "FILTERS", "ArrowStreamWriter", "Feature"]
