"""Columns a sink takes, and how they become those that rmqpy sends.

Owns the names, aliases and types of both sides. Mistakes of the user are reported while the job is planned; the casts
run on whole columns, in Arrow.
"""

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from pyspark_rocketmq.options import Options
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow

_TEXT = ("string",)
#: Column, its aliases, and the Spark types it can have.
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

#: What a value that is null has in the place of its length and text.
_NULL: Final = "-"


def check(schema: StructType, options: Options) -> dict[str, str]:
    """The columns to send, by the names rmqpy has for them. Raises `ConfigError` for what cannot be sent."""
    chosen: dict[str, str] = {}
    identifying = () if options.idempotency_key in (("position",), ("none",)) else options.idempotency_key
    for field in schema.fields:
        name = _NAMES.get(field.name.lower())
        if name is None:
            if not (options.ignore_extra_columns or field.name in identifying):
                raise ConfigError(
                    f"the sink has no use for column {field.name!r}; it takes {', '.join(COLUMNS)}",
                    hint="select those, or set ignoreExtraColumns=true",
                )
            continue
        kind, possible = field.dataType.simpleString(), COLUMNS[name][1]
        if kind not in possible:
            raise ConfigError(
                f"column {field.name!r} cannot be {kind}; it can be {' or '.join(possible)}",
                hint=f"cast it: .withColumn({field.name!r}, col({field.name!r}).cast({possible[0]!r}))",
            )
        if name in chosen:
            raise ConfigError(f"columns {chosen[name]!r} and {field.name!r} mean the same")
        chosen[name] = field.name
    if "body" not in chosen:
        raise ConfigError("there is no column 'body'", hint="name one so, or 'value'")
    if "topic" not in chosen and options.topic is None:
        raise ConfigError("there is no topic", hint="give the option 'topic', or a column of that name")
    if absent := set(identifying) - set(schema.fieldNames()):
        raise ConfigError(f"option 'idempotencyKey' names {min(absent)!r}, which is no column")
    if options.queue_selector == "column" and "queueId" not in chosen:
        raise ConfigError("queueSelector=column needs a column 'queueId'")
    if options.queue_selector == "hash" and not chosen.keys() & {"shardingKey", "keys"}:
        raise ConfigError("queueSelector=hash needs a column 'shardingKey' or 'keys'")
    return chosen


def messages(
    batch: "pyarrow.RecordBatch", columns: dict[str, str], options: Options
) -> "pyarrow.RecordBatch":
    """The batch as rmqpy takes it."""
    import pyarrow

    arrays = {name: _as_sent(batch.column(column), name) for name, column in columns.items()}
    if options.idempotency_key not in (("position",), ("none",)):
        # One row for each of two topics is two messages.
        topics = [columns["topic"]] if options.topic is None else []
        arrays["identity"] = _identity([batch.column(name) for name in (*topics, *options.idempotency_key)])
    return pyarrow.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _as_sent(column: "pyarrow.Array", name: str) -> "pyarrow.Array":
    import pyarrow

    match name:
        case "body":
            return column.cast(pyarrow.binary())
        case "deliverTimestamp" if pyarrow.types.is_timestamp(column.type):
            return column.cast(pyarrow.timestamp("ms", column.type.tz), safe=False).cast(pyarrow.int64())
    return column


def _identity(columns: "list[pyarrow.Array]") -> "pyarrow.Array":
    """One text for each row that identifies it: every value with its length in front, so that no two rows of
    different values have the same text. Parts of a structure, as Spark's windows are, count each."""
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
