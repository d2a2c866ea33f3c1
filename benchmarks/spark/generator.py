"""Generator: a data source that creates the batches of a topic, to measure Spark without broker and connector.

Runs on executors, where this package must be on PYTHONPATH.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow

#: The columns of a read, and of a write.
COLUMNS = "queueId int, queueOffset bigint, body binary"
#: The connector's batch size.
BATCH_ROWS = 10_000


class Generator(DataSource):
    """`format("generator")`, with the options `messages`, `bytes` and `queues`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "generator"

    def schema(self) -> str:
        """The columns of a read that selects three."""
        return COLUMNS

    def reader(self, schema: StructType) -> "GeneratorReader":
        """A batch read."""
        messages, size, queues = (int(self.options[name]) for name in ("messages", "bytes", "queues"))
        return GeneratorReader(schema, messages // queues, size, queues)


class GeneratorReader(DataSourceReader):
    """One task per queue, which returns one batch repeatedly."""

    def __init__(self, schema: StructType, rows: int, size: int, queues: int) -> None:
        self._schema, self._rows, self._size, self._queues = schema, rows, size, queues

    def partitions(self) -> list[InputPartition]:
        """One partition per queue."""
        return [InputPartition(queue_id) for queue_id in range(self._queues)]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """The rows of one queue."""
        import pyarrow
        from pyspark.sql.pandas.types import to_arrow_schema

        rows = range(BATCH_ROWS)
        columns = [[partition.value for _ in rows], list(rows), [b"x" * self._size for _ in rows]]
        schema = to_arrow_schema(self._schema, timezone="UTC")
        batch = pyarrow.RecordBatch.from_pydict(dict(zip(schema.names, columns, strict=True)), schema=schema)
        for start in range(0, self._rows, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, self._rows - start))
