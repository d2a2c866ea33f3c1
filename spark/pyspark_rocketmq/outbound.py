"""Columns of the sink: checks them while the job is planned, and converts batches for rmqpy.

Owns the names, aliases and types of both sides. Casts run on whole columns in Arrow.
"""

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import DataType, StructType

from pyspark_rocketmq.bodies import ddl, written
from pyspark_rocketmq.options import Options
from rmqpy.bodies import encoding
from rmqpy.bodies.types import parse_schema
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow

_TEXT = ("string",)
#: Aliases and Spark types by column.
COLUMNS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "body": (("value",), ("binary", "string")),
    "topic": ((), _TEXT),
    "tags": ((), _TEXT),
    "keys": (("key",), ("string", "array<string>")),
    "properties": (("headers",), ("map<string,string>",)),
    "shardingKey": ((), _TEXT),
    "queueId": (("partition",), ("int",)),
    "brokerName": ((), _TEXT),
    "delayLevel": ((), ("int",)),
    "deliverTimestamp": ((), ("timestamp", "bigint")),
    "flag": ((), ("int",)),
    "msgId": ((), _TEXT),
}
_NAMES: Final = {
    spelling.lower(): name for name, (aliases, _) in COLUMNS.items() for spelling in (name, *aliases)
}

#: Replaces the length and text of a null.
_NULL: Final = "-"


def check(schema: StructType, options: Options) -> dict[str, str]:
    """Return the columns to send by their names in rmqpy. Raises `ConfigError` for columns that cannot be sent."""
    chosen: dict[str, str] = {}
    identifying = () if options.idempotency_key in (("position",), ("none",)) else options.idempotency_key
    for field in schema.fields:
        name = _NAMES.get(field.name.lower())
        if name is None:
            if not (options.ignore_extra_columns or field.name in identifying):
                raise ConfigError(
                    f"column {field.name!r} is not part of a message; the sink accepts {', '.join(COLUMNS)}",
                    hint="drop it, or set ignoreExtraColumns=true",
                )
            continue
        kind, possible = field.dataType.simpleString(), COLUMNS[name][1]
        if name == "body" and options.body_format != "raw":
            _check_body(field.dataType, options)
        elif kind not in possible:
            raise ConfigError(
                f"column {field.name!r} cannot be {kind}; it can be {' or '.join(possible)}",
                hint=f"cast it: .withColumn({field.name!r}, col({field.name!r}).cast({possible[0]!r}))",
            )
        if name in chosen:
            raise ConfigError(f"columns {chosen[name]!r} and {field.name!r} are the same; drop one of them")
        chosen[name] = field.name
    if "body" not in chosen:
        raise ConfigError("column 'body' is missing", hint="rename a column to 'body' or 'value'")
    if "topic" not in chosen and options.topic is None:
        raise ConfigError("the topic is missing", hint="set the option 'topic', or add a column of that name")
    if absent := set(identifying) - set(schema.fieldNames()):
        raise ConfigError(f"option 'idempotencyKey' names {min(absent)!r}, which is not a column")
    if options.queue_selector == "column" and "queueId" not in chosen:
        raise ConfigError("queueSelector=column needs a column 'queueId'")
    if options.queue_selector == "hash" and not chosen.keys() & {"shardingKey", "keys"}:
        raise ConfigError("queueSelector=hash needs a column 'shardingKey' or 'keys'")
    return chosen


def messages(
    batch: "pyarrow.RecordBatch", columns: dict[str, str], options: Options
) -> "pyarrow.RecordBatch":
    """Convert a batch for rmqpy."""
    import pyarrow

    arrays = {name: _as_sent(batch.column(column), name, options) for name, column in columns.items()}
    if options.idempotency_key not in (("position",), ("none",)):
        # Equal rows for different topics are different messages.
        topics = [columns["topic"]] if options.topic is None else []
        arrays["identity"] = _identity([batch.column(name) for name in (*topics, *options.idempotency_key)])
    return pyarrow.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _check_body(kind: DataType, options: Options) -> None:
    """Raise `ConfigError` if bodies of this type cannot be written in the format of the options."""
    if not isinstance(kind, StructType):
        raise ConfigError(
            f"column 'body' cannot be {kind.simpleString()} with bodyFormat={options.body_format}: it is a structure",
            hint="put the fields into struct(…), or leave out bodyFormat",
        )
    encoding.check(parse_schema(ddl(kind)), written(options))


def _as_sent(column: "pyarrow.Array", name: str, options: Options) -> "pyarrow.Array":
    import pyarrow

    match name:
        case "body" if options.body_format != "raw":
            return encoding.encode(column, written(options), options.schema_id)
        case "body":
            return column.cast(pyarrow.binary())
        case "deliverTimestamp" if pyarrow.types.is_timestamp(column.type):
            return column.cast(pyarrow.timestamp("ms", column.type.tz), safe=False).cast(pyarrow.int64())
    return column


def _identity(columns: "list[pyarrow.Array]") -> "pyarrow.Array":
    """Return a text for each row that identifies it. Lengths precede values, so rows with different values have
    different texts. The fields of a structure, such as a window, are separate values."""
    import pyarrow
    import pyarrow.compute

    parts: list[Any] = []
    while columns:
        column = columns.pop(0)
        if pyarrow.types.is_struct(column.type):
            columns = [*column.flatten(), *columns]
        elif pyarrow.types.is_timestamp(column.type):
            parts.append(column.cast(pyarrow.int64()).cast(pyarrow.string()))
        else:
            try:
                parts.append(column.cast(pyarrow.string()))
            except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
                raise ConfigError(f"a column of type {column.type} cannot identify a row: {error}") from None
    sized = [
        pyarrow.compute.binary_join_element_wise(
            pyarrow.compute.binary_length(part).cast(pyarrow.string()), part, ":"
        )
        for part in parts
    ]
    return pyarrow.compute.binary_join_element_wise(
        *sized, "", null_handling="replace", null_replacement=_NULL
    )
