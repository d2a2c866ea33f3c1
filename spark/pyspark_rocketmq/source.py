"""`format("rocketmq")`: the factory of readers and writers for Spark.

Everything a user can get wrong in options and schema is refused here, at `load()` and `start()`.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_rocketmq.batch import FilteringReader, TopicReader
from pyspark_rocketmq.options import BATCH, STREAM, WRITE, Options
from pyspark_rocketmq.predicates import wanted_by
from pyspark_rocketmq.schema import asked, default_schema
from pyspark_rocketmq.sink import TopicStreamWriter, TopicWriter, refuse_overwrite
from pyspark_rocketmq.stream import TopicStream


class RocketMQSource(DataSource):
    """Topics, to read and to write, at once or as they grow."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "rocketmq"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Misspelt names are refused early; combinations are checked for the operation that comes next.
        self._any = Options.parse(options)
        wanted_by(self._any)

    def schema(self) -> StructType:
        """The default columns, for a user without a schema."""
        return default_schema(self._any.include_properties)

    def reader(self, schema: StructType) -> TopicReader:
        """A batch read."""
        options = Options.parse(self.options, BATCH)
        kind = FilteringReader if options.pushdown else TopicReader
        return kind(options, asked(schema))

    def streamReader(self, schema: StructType) -> TopicStream:  # noqa: N802
        """A streaming read."""
        return TopicStream(Options.parse(self.options, STREAM), asked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        """A batch write."""
        refuse_overwrite(overwrite)
        return TopicWriter(Options.parse(self.options, WRITE), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:  # noqa: N802
        """A streaming write. `complete` comes as an overwrite: each batch sends all rows again."""
        return TopicStreamWriter(Options.parse(self.options, WRITE), schema)
