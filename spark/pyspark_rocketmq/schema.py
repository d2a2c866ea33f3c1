"""Columns of a read: checks a schema of the user against the names and types that rmqpy defines.

`properties` may be a structure whose fields name properties. Only those are passed to Spark, and brokers can evaluate
filters on them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    import pyarrow

#: Types of Spark by their names in rmqpy.
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
    """Return the default columns. The map of properties is optional: it costs more than all other columns."""
    kinds = rmqpy.column_types()
    names = [name for name in rmqpy.default_columns() if with_properties or name != "properties"]
    return StructType([StructField(name, SPARK_TYPES[kinds[name][0]]) for name in names])


_PROPERTIES = "properties"


@dataclass(frozen=True, slots=True)
class Asked:
    """The columns that a read produces, in this order."""

    #: The types for rmqpy, by column.
    columns: Mapping[str, str]
    #: The fields of `properties` if it is a structure.
    fields: tuple[str, ...] = ()

    def shaped(self, batch: "pyarrow.RecordBatch") -> "pyarrow.RecordBatch":
        """Convert a batch of rmqpy to the schema of the user."""
        if not self.fields:
            return batch
        import pyarrow
        from pyarrow import compute

        index = batch.schema.get_field_index(_PROPERTIES)
        properties = batch.column(index)
        values = [compute.map_lookup(properties, name, "last") for name in self.fields]
        structure = pyarrow.StructArray.from_arrays(values, list(self.fields))
        return batch.set_column(index, _PROPERTIES, structure)


def asked(schema: StructType) -> Asked:
    """Return the columns of a schema. Raises `ConfigError` for an unknown column or a type it cannot have."""
    known = rmqpy.column_types()
    columns: dict[str, str] = {}
    properties: tuple[str, ...] = ()
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name == _PROPERTIES and isinstance(field.dataType, StructType):
            properties = _fields(field.dataType)
            kind = known[_PROPERTIES][0]
        if field.name not in known:
            raise rmqpy.errors.ConfigError(f"unknown column {field.name!r}; known are {', '.join(known)}")
        if kind not in known[field.name]:
            possible = " or ".join(known[field.name])
            raise rmqpy.errors.ConfigError(f"column {field.name!r} cannot be {kind}; it can be {possible}")
        if field.name in columns:
            raise rmqpy.errors.ConfigError(f"column {field.name!r} appears twice in the schema")
        columns[field.name] = kind
    return Asked(columns, properties)


def _fields(structure: StructType) -> tuple[str, ...]:
    names = tuple(field.name for field in structure.fields)
    for field in structure.fields:
        if not isinstance(field.dataType, StringType):
            raise rmqpy.errors.ConfigError(
                f"property {field.name!r} cannot be {field.dataType.simpleString()}: properties are string; cast it"
            )
    if not names or len(set(names)) < len(names):
        raise rmqpy.errors.ConfigError(
            "the structure of properties needs at least one field, and each name only once"
        )
    return names
