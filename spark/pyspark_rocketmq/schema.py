"""Columns a read can have, and which of them a user's schema asks for.

Names follow the older RocketMQ connector, so that SQL written for it runs. Every column is nullable; timestamps are
UTC microseconds.
"""

from collections.abc import Mapping

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

#: What a read gives unless the user names a schema.
COLUMNS: Mapping[str, DataType] = {
    "topic": StringType(),
    "brokerName": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "msgId": StringType(),
    "tags": StringType(),
    "keys": StringType(),
    "body": BinaryType(),
    "properties": MapType(StringType(), StringType()),
    "flag": IntegerType(),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
}


class SchemaError(ValueError):
    """The schema a user gave names a column there is not, or another type for one there is."""


def default_schema(with_properties: bool) -> StructType:
    """All columns, without the map of properties if it is not wanted: it costs more than all others together."""
    return StructType(
        [StructField(name, kind) for name, kind in COLUMNS.items() if with_properties or name != "properties"]
    )


def check(schema: StructType) -> None:
    """Refuse a schema that cannot be read. Its columns, in its order, are the only ones produced."""
    for column in schema.fields:
        kind = COLUMNS.get(column.name)
        if kind is None:
            raise SchemaError(f"there is no column {column.name!r}; there are {', '.join(COLUMNS)}")
        if column.dataType != kind:
            raise SchemaError(
                f"column {column.name!r} is {kind.simpleString()}, not {column.dataType.simpleString()}"
            )
    if len(set(schema.names)) != len(schema.names):
        raise SchemaError("a column stands twice in the schema")
