"""Rows as Arrow batches, for a Spark 4.0 that gives its stream writers rows.

Apache Spark 4.0 gives Arrow batches to `features.ArrowStreamWriter`. Its API promises that to batch writers only. Rows
have local times without a time zone, which are ambiguous in the hour that repeats when daylight saving time ends.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow

#: Rows in one batch.
ROWS_MAX: Final = 10_000


def batches(given: "Iterator[Any]", schema: StructType) -> "Iterator[pyarrow.RecordBatch]":
    """Yield what Spark gave a writer as Arrow batches of the types of `schema`, equal for rows and for batches."""
    import pyarrow

    first = next(given, None)
    if first is None:
        return
    given = chain([first], given)
    if isinstance(first, pyarrow.RecordBatch):
        yield from given
        return
    from pyspark.sql.conversion import LocalDataToArrowConversion

    while rows := list(islice(given, ROWS_MAX)):
        yield from LocalDataToArrowConversion.convert(rows, schema, False).to_batches()
