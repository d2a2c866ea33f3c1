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
from pyspark_rocketmq.bodies import ddl, spark_type, typed_columns
from rmqpy.bodies.columns import BODY, CORRUPT, EXTRA, SCHEMA_ID, TypedColumns
from rmqpy.bodies.format import BodyFormat
from rmqpy.bodies.types import parse_schema

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


_PROPERTIES = "properties"
_RAW = BodyFormat(name="raw")


def default_schema(with_properties: bool, bodies: BodyFormat = _RAW) -> StructType:
    """Return the default columns. The map of properties is optional: it costs more than all other columns."""
    kinds = rmqpy.column_types()
    names = [name for name in rmqpy.default_columns() if with_properties or name != _PROPERTIES]
    columns = {name: SPARK_TYPES[kinds[name][0]] for name in names}
    if bodies.is_typed:
        columns[BODY] = spark_type(bodies.kind())
    columns |= {name: SPARK_TYPES[kind] for name, kind in typed_columns(bodies).items()}
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@dataclass(frozen=True, slots=True)
class Asked:
    """The columns that a read produces, in this order."""

    #: The types for rmqpy, by column.
    columns: Mapping[str, str]
    #: The fields of `properties` if it is a structure.
    fields: tuple[str, ...] = ()
    #: The format of bodies.
    bodies: BodyFormat = _RAW
    #: The type of the column `body` if it is a structure.
    body: str = ""

    def typed(self) -> TypedColumns | None:
        """Return what shapes the batches of one task, or `None` for raw bodies."""
        if not self.bodies.is_typed:
            return None
        return TypedColumns(self.columns, self.bodies, parse_schema(self.body) if self.body else None)

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


def asked(schema: StructType, bodies: BodyFormat = _RAW) -> Asked:
    """Return the columns of a schema. Raises `ConfigError` for an unknown column or a type it cannot have."""
    known = rmqpy.column_types()
    body = ""
    if bodies.is_typed:
        known |= {CORRUPT: [EXTRA[CORRUPT]]} | ({SCHEMA_ID: [EXTRA[SCHEMA_ID]]} if bodies.has_header else {})
    columns: dict[str, str] = {}
    properties: tuple[str, ...] = ()
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name == _PROPERTIES and isinstance(field.dataType, StructType):
            properties = _fields(field.dataType)
            kind = known[_PROPERTIES][0]
        if field.name == BODY and (bodies.is_typed or isinstance(field.dataType, StructType)):
            body = _body(field.dataType, bodies)
            kind = known[BODY][0]
        if field.name not in known:
            raise rmqpy.errors.ConfigError(f"unknown column {field.name!r}; known are {', '.join(known)}")
        if kind not in known[field.name]:
            possible = " or ".join(known[field.name])
            raise rmqpy.errors.ConfigError(f"column {field.name!r} cannot be {kind}; it can be {possible}")
        if field.name in columns:
            raise rmqpy.errors.ConfigError(f"column {field.name!r} appears twice in the schema")
        columns[field.name] = kind
    if bodies.is_typed and not bodies.schema and CORRUPT in columns and not body:
        raise rmqpy.errors.ConfigError(f"column {CORRUPT!r} needs a schema of bodies", hint="set bodySchema")
    if body and not bodies.schema:
        bodies = bodies.with_schema(parse_schema(body))
    return Asked(columns, properties, bodies, body)


def _body(kind: DataType, bodies: BodyFormat) -> str:
    """Return the structure of decoded bodies as rmqpy's DDL."""
    if not bodies.is_typed:
        raise rmqpy.errors.ConfigError(
            "column 'body' is a structure only with typed bodies",
            hint="set bodyFormat to json, csv, avro or protobuf",
        )
    if not isinstance(kind, StructType):
        raise rmqpy.errors.ConfigError(
            f"column 'body' is a structure with bodyFormat={bodies.name}, not {kind.simpleString()}",
            hint="leave out bodyFormat to read raw bodies",
        )
    found = ddl(kind)
    parse_schema(found)
    return found


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
