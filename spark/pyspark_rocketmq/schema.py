"""Columns of a read. rmqpy defines their names, and the types each can have."""

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

import rmqpy

#: Spark's types by the names rmqpy knows them by.
SPARK_TYPES: Mapping[str, DataType] = {
    kind.simpleString(): kind
    for kind in (
        StringType(),
        BinaryType(),
        IntegerType(),
        LongType(),
        TimestampType(),
        MapType(StringType(), StringType()),
    )
}


def default_schema(with_properties: bool) -> StructType:
    """The usual columns, without the map of properties if it is not wanted: it costs more than all others."""
    kinds = rmqpy.column_types()
    names = [name for name in rmqpy.default_columns() if with_properties or name != "properties"]
    return StructType([StructField(name, SPARK_TYPES[kinds[name][0]]) for name in names])


def asked(schema: StructType) -> dict[str, str]:
    """The columns of a schema with their types, as rmqpy takes them: they alone are produced, in this order.

    Raises `ConfigError` for a column there is not, and for a type it cannot have.
    """
    known = rmqpy.column_types()
    columns: dict[str, str] = {}
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name not in known:
            raise rmqpy.errors.ConfigError(f"there is no column {field.name!r}; there are {', '.join(known)}")
        if kind not in known[field.name]:
            possible = " or ".join(known[field.name])
            raise rmqpy.errors.ConfigError(f"column {field.name!r} cannot be {kind}; it can be {possible}")
        if field.name in columns:
            raise rmqpy.errors.ConfigError(f"column {field.name!r} stands twice in the schema")
        columns[field.name] = kind
    return columns
