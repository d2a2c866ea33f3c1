"""Structures as Protobuf bodies: fields by their names, nulls left out."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rmqpy.bodies.arrow import pyarrow
from rmqpy.bodies.protobuf_schema import TIMESTAMP, field_type, is_map, is_repeated
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

#: Converts a value of Arrow's `to_pylist` for the constructor of a message.
_Convert = Callable[[Any], Any]


def encoder(message: Any, kind: "pa.StructType") -> "Callable[[pa.StructArray], pa.Array]":
    """Return the conversion of structures to bodies, null for null. Raises `ConfigError` for a field that the message
    does not have, or that cannot be of its type."""
    pa = pyarrow("bodies as Protobuf")
    convert = _structure(message.DESCRIPTOR, kind)

    def encode(values: Any) -> Any:
        bodies = []
        for row in values.to_pylist():
            try:
                bodies.append(None if row is None else message(**convert(row)).SerializeToString())
            except (ValueError, TypeError) as error:
                raise ValueError(f"a body is not a {message.DESCRIPTOR.full_name}: {error}") from None
        return pa.array(bodies, pa.binary())

    return encode


def _structure(descriptor: Any, kind: "pa.StructType") -> _Convert:
    known = descriptor.fields_by_name
    fields: list[tuple[str, _Convert]] = []
    for each in kind:
        if each.name not in known:
            raise ConfigError(
                f"message {descriptor.full_name} has no field {each.name!r}; it has {', '.join(known) or 'none'}"
            )
        fields.append((each.name, _field(known[each.name], each.type)))

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        return {name: one(row[name]) for name, one in fields if row[name] is not None}

    return convert


def _field(field: Any, kind: "pa.DataType") -> _Convert:
    types = pyarrow("bodies as Protobuf").types
    if is_map(field):
        parts = field.message_type.fields_by_name
        if not types.is_map(kind):
            raise _unfit(field, kind)
        key, value = _key(parts["key"]), _single(parts["value"], kind.item_type)
        return lambda entries: {key(name): value(each) for name, each in entries if each is not None}
    if is_repeated(field):
        if not types.is_list(kind):
            raise _unfit(field, kind)
        element = _single(field, kind.value_type)
        return lambda values: [element(each) for each in values if each is not None]
    return _single(field, kind)


def _key(field: Any) -> _Convert:
    if field.cpp_type == field.CPPTYPE_STRING:
        return str
    if field.cpp_type == field.CPPTYPE_BOOL:
        return lambda text: {"true": True, "false": False}[text]
    return int


def _single(field: Any, kind: "pa.DataType") -> _Convert:
    types = pyarrow("bodies as Protobuf").types
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP and types.is_timestamp(kind):
            return _time(kind)
        if not types.is_struct(kind):
            raise _unfit(field, kind)
        return _structure(field.message_type, kind)
    of = field
    is_number = types.is_integer(kind) or types.is_decimal(kind)
    if field.enum_type is not None:
        fits = types.is_string(kind) or types.is_integer(kind)
    elif field.cpp_type in (of.CPPTYPE_DOUBLE, of.CPPTYPE_FLOAT):
        fits = types.is_floating(kind) or is_number
    elif field.cpp_type == of.CPPTYPE_BOOL:
        fits = types.is_boolean(kind)
    elif field.type == of.TYPE_BYTES:
        fits = types.is_binary(kind)
    elif field.cpp_type == of.CPPTYPE_STRING:
        fits = types.is_string(kind)
    else:
        fits = types.is_integer(kind) or (types.is_decimal(kind) and kind.scale == 0)
    if not fits:
        raise _unfit(field, kind)
    if types.is_decimal(kind):
        return float if field.cpp_type in (of.CPPTYPE_DOUBLE, of.CPPTYPE_FLOAT) else int
    return lambda value: value


def _time(kind: "pa.DataType") -> _Convert:
    from datetime import UTC, datetime, timedelta

    epoch = datetime(1970, 1, 1, tzinfo=UTC if kind.tz else None)

    def convert(moment: datetime) -> dict[str, int]:
        micros = (moment - epoch) // timedelta(microseconds=1)
        return {"seconds": micros // 1_000_000, "nanos": micros % 1_000_000 * 1000}

    return convert


def _unfit(field: Any, kind: "pa.DataType") -> ConfigError:
    return ConfigError(
        f"field {field.full_name!r} is {field_type(field)}, which cannot be written from {kind}"
    )
