"""Structures as bodies: JSON objects, CSV records and Protobuf messages, made from whole columns.

A null structure is an empty body. JSON leaves out null fields, as Spark's `to_json` does. What the encoders write, the
decoders of this package read back.
"""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies.arrow import pyarrow
from rmqpy.bodies.format import BodyFormat
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

#: Characters that JSON escapes in a string.
_ESCAPED: Final = r'["\\\x00-\x1f]'


def encode(values: "pa.StructArray", of: BodyFormat, schema_id: int | None = None) -> "pa.Array":
    """Return structures as bodies in a format, after Confluent's header with `schema_id`. Raises `ValueError` for a
    value that a Protobuf field does not hold."""
    pa = pyarrow("bodies as columns")
    from pyarrow import compute

    header = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")
    match of.name:
        case "json":
            bodies = _json(values)
        case "csv":
            bodies = _csv(values, of.separator)
        case "protobuf":
            from rmqpy.bodies.protobuf import with_header
            from rmqpy.bodies.protobuf_encoding import encoder
            from rmqpy.bodies.protobuf_schema import indexes_of, message_class

            if not of.descriptors:
                raise ConfigError(
                    "Protobuf bodies are written by the descriptor of their message",
                    hint="give a descriptor file",
                )
            message = message_class(of.descriptors, of.message)
            bodies = encoder(message, values.type)(values)
            if schema_id is not None:
                header = with_header(schema_id, indexes_of(message))
        case name:
            raise ConfigError(
                f"bodies cannot be written as {name}",
                hint="use json, csv or protobuf, or encode them as binary",
            )
    bodies = compute.if_else(compute.is_valid(values), bodies.cast(pa.binary()), pa.scalar(b"", pa.binary()))
    if schema_id is None:
        return bodies
    return compute.binary_join_element_wise(
        pa.scalar(header, pa.binary()), bodies, pa.scalar(b"", pa.binary())
    )


def check(kind: "pa.StructType", of: BodyFormat) -> None:
    """Raise `ConfigError` if structures of this type cannot be written in a format."""
    encode(pyarrow("bodies as columns").nulls(1, kind), of)


def _joined(*parts: Any) -> "pa.Array":
    from pyarrow import compute

    return compute.binary_join_element_wise(*parts, "")


def _json(values: "pa.Array") -> "pa.Array":
    """Return the JSON of each value, `null` for nulls."""
    pa = pyarrow("bodies as JSON")
    from pyarrow import compute

    types, kind = pa.types, values.type
    if types.is_struct(kind):
        pieces = []
        for field, column in zip(kind, values.flatten(), strict=True):
            named = "," + json.dumps(field.name, ensure_ascii=False) + ":"
            present = _joined(named, _json(column))
            pieces.append(compute.if_else(compute.is_valid(column), present, ""))
        # Each piece begins with a comma, of which the first is cut off.
        inner = compute.utf8_slice_codeunits(_joined(*pieces), 1, (1 << 31) - 1) if pieces else None
        text = _joined("{", inner, "}") if pieces else pa.array(["{}"] * len(values))
    elif types.is_map(kind):
        entries = _joined(_json(values.keys.cast(pa.string())), ":", _json(values.items))
        text = _joined("{", _lists(values, entries), "}")
    elif types.is_list(kind):
        text = _joined("[", _lists(values, _json(values.values)), "]")
    else:
        text = _scalar(values)
    return compute.if_else(compute.is_valid(values), text, "null")


def _lists(values: "pa.Array", elements: "pa.Array") -> "pa.Array":
    """Join the texts of the elements of each list. `elements` belong to the whole buffer of a sliced list."""
    pa = pyarrow("bodies as JSON")
    from pyarrow import compute

    lists = pa.ListArray.from_arrays(values.offsets, elements)
    return compute.fill_null(compute.binary_join(lists, ","), "")


def _scalar(values: "pa.Array") -> "pa.Array":
    pa = pyarrow("bodies as JSON")
    from pyarrow import compute

    types, kind = pa.types, values.type
    if types.is_string(kind):
        if compute.any(compute.match_substring_regex(values, _ESCAPED)).as_py():
            return _each(values, lambda text: json.dumps(text, ensure_ascii=False))
        return _joined('"', values, '"')
    if types.is_floating(kind):
        if compute.all(compute.is_finite(values)).as_py() is not False:
            return values.cast(pa.string())
        return _each(values, lambda number: json.dumps(_finite(number)))
    if types.is_binary(kind):
        return _each(values, lambda data: f'"{b64encode(data).decode()}"')
    if types.is_timestamp(kind):
        return _joined('"', _time(values), '"')
    if types.is_date(kind):
        return _joined('"', values.cast(pa.string()), '"')
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind):
        return values.cast(pa.string())
    raise ConfigError(f"a field of a body cannot be {kind}")


def _time(values: "pa.Array") -> "pa.Array":
    from pyarrow import compute

    zone = "Z" if values.type.tz else ""
    return compute.strftime(values, format=f"%Y-%m-%dT%H:%M:%S{zone}")


def _finite(number: float) -> object:
    """Return what JSON has no number for by Spark's words."""
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def _csv(values: "pa.StructArray", separator: str) -> "pa.Array":
    pa = pyarrow("bodies as CSV")
    from pyarrow import compute

    texts = []
    for field, column in zip(values.type, values.flatten(), strict=True):
        if pa.types.is_nested(field.type):
            raise ConfigError(f"field {field.name!r} cannot be {field.type} in CSV")
        if pa.types.is_timestamp(field.type):
            text = _time(column)
        elif pa.types.is_binary(field.type):
            text = _each(column, lambda data: b64encode(data).decode())
        else:
            text = column.cast(pa.string())
        text = compute.fill_null(text, "")
        special = compute.match_substring_regex(text, f'["\\r\\n{_in_class(separator)}]')
        if compute.any(special).as_py():
            quoted = _joined('"', compute.replace_substring(text, '"', '""'), '"')
            text = compute.if_else(special, quoted, text)
        texts.append(text)
    return compute.binary_join_element_wise(*texts, separator)


def _in_class(character: str) -> str:
    return "\\" + character if character in "\\]^-" else character


def _each(values: "pa.Array", convert: Callable[[Any], str]) -> "pa.Array":
    """Convert values one by one, for the few kinds without a function in Arrow."""
    pa = pyarrow("bodies as columns")
    return pa.array([None if value is None else convert(value) for value in values.to_pylist()], pa.string())
