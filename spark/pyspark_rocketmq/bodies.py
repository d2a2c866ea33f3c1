"""Typed bodies: the format of the options, Spark's types as its schema and back, and schemas sampled from topics."""

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
)

import rmqpy
from pyspark_rocketmq.cluster import Cluster, client_config
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.wanted import wanted_by
from rmqpy.bodies.columns import CORRUPT, SCHEMA_ID
from rmqpy.bodies.format import BodyFormat
from rmqpy.bodies.inference import infer
from rmqpy.errors import ConfigError
from rmqpy.tables.topic_read import sample

if TYPE_CHECKING:
    import pyarrow

#: Options of rmqpy by their names here.
_HINT = "set bodySchema, or inferSchema=true, or give the column body in .schema(…)"


def bodies_by(options: Options) -> BodyFormat:
    """Return the format of the options, whose schema may still be unknown. Raises `ConfigError`."""
    if options.body_format == "raw":
        given = (options.body_schema, options.schema_registry, options.descriptor_file, options.message_name)
        if any(given) or options.infer_schema:
            raise ConfigError(
                "options of bodies have no effect without 'bodyFormat'",
                hint="set it to json, csv, avro or protobuf",
            )
        return BodyFormat(name="raw")
    try:
        return BodyFormat.of(
            options.body_format,
            options.body_schema or None,
            mode=options.mode,
            separator=options.sep,
            registry=options.schema_registry or None,
            descriptors=options.descriptor_file,
            message=options.message_name,
        )
    except ConfigError as error:
        raise ConfigError(f"option 'bodyFormat': {error}") from None


def written(options: Options) -> BodyFormat:
    """Return the format of the bodies of a sink."""
    if options.body_format == "protobuf":
        return bodies_by(options)
    return BodyFormat(name=options.body_format, separator=options.sep)


def with_fields(bodies: BodyFormat, options: Options) -> BodyFormat:
    """Return the format with a schema, which is sampled from the topics if the options say so."""
    if bodies.schema or not bodies.is_typed:
        return bodies
    if not options.infer_schema:
        raise bodies.without_schema(_HINT)
    with Cluster(options) as cluster:
        held = cluster.held(cluster.queues())
    ranges = [
        rmqpy.QueueRange(rmqpy.MessageQueue(*queue), begin, end)
        for queue, (begin, end) in sorted(held.items())
    ]
    latest = sample(ranges, client_config(options), {"tags": wanted_by(options)})
    return bodies.with_schema(infer(latest, bodies))


def typed_columns(bodies: BodyFormat) -> dict[str, str]:
    """Return the columns that a default schema has more with typed bodies, and their types."""
    columns = {CORRUPT: "binary"} if bodies.is_typed and bodies.mode == "PERMISSIVE" else {}
    return columns | ({SCHEMA_ID: "int"} if bodies.has_header else {})


def spark_type(kind: "pyarrow.DataType") -> DataType:
    """Return Spark's type for an Arrow type."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def ddl(kind: DataType) -> str:
    """Return a type of Spark as rmqpy's DDL. Unlike `simpleString` it leaves nothing out of long structures."""
    if isinstance(kind, StructType):
        fields = (f"`{field.name.replace('`', '``')}`: {ddl(field.dataType)}" for field in kind.fields)
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{ddl(kind.keyType)},{ddl(kind.valueType)}>"
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    return kind.simpleString()
