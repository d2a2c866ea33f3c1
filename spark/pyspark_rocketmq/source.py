"""The data source `rocketmq`: creates readers and writers for Spark.

Errors in options and schema are raised here, at `load()` and `start()`.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_rocketmq.batch import TopicReader
from pyspark_rocketmq.bodies import bodies_by, with_fields
from pyspark_rocketmq.features import ADMISSION, FILTERS
from pyspark_rocketmq.options import BATCH, STREAM, WRITE, Options
from pyspark_rocketmq.schema import asked, default_schema
from pyspark_rocketmq.sink import TopicStreamWriter, TopicWriter, refuse_overwrite
from pyspark_rocketmq.stream import TopicStream
from pyspark_rocketmq.wanted import wanted_by


class RocketMQSource(DataSource):
    """Topics as a source and a sink, for batches and streams."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "rocketmq"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Finds misspelt names early. Combinations are checked once the operation is known.
        self._any = Options.parse(options)
        wanted_by(self._any)
        self._bodies = bodies_by(self._any)

    def schema(self) -> StructType:
        """Return the default columns."""
        return default_schema(self._any.include_properties, with_fields(self._bodies, self._any))

    def reader(self, schema: StructType) -> TopicReader:
        """Return a batch read."""
        options = Options.parse(self.options, BATCH)
        if not options.pushdown:
            return TopicReader(options, asked(schema, self._bodies))
        FILTERS.require("option 'pushdown'")
        from pyspark_rocketmq.pushdown import FilteringReader

        return FilteringReader(options, asked(schema, self._bodies))

    def streamReader(self, schema: StructType) -> TopicStream:  # noqa: N802
        """Return a streaming read."""
        options = Options.parse(self.options, STREAM)
        if ADMISSION.is_offered:
            from pyspark_rocketmq.admission import AdmittedStream

            return AdmittedStream(options, asked(schema, self._bodies))
        from pyspark_rocketmq.paced import PacedStream

        return PacedStream(options, asked(schema, self._bodies))

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        """Return a batch write."""
        refuse_overwrite(overwrite)
        return TopicWriter(Options.parse(self.options, WRITE), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:  # noqa: N802
        """Return a streaming write. Output mode `complete` arrives as an overwrite: each batch sends all rows again."""
        return TopicStreamWriter(Options.parse(self.options, WRITE), schema)
