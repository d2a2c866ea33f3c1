"""Protobuf bodies: one message in each, by a descriptor of the reader, or by the schema that a registry has for its id.

Protobuf's library parses bodies; their fields become columns, one field of all messages at a time. A field without
presence that is not in a body has its default, any other is null. Parsers accept fields that they do not know, so a
message of another type may be a valid body.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies import registry as registries
from rmqpy.bodies.arrow import pyarrow
from rmqpy.bodies.decoded import Decoded, scattered
from rmqpy.bodies.protobuf_schema import (
    TIMESTAMP,
    field_type,
    is_map,
    is_repeated,
    message_by_indexes,
    message_class,
    protobuf,
    single_type,
)
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

#: One column from the same field of messages.
_Column = Callable[[Sequence[Any]], "pa.Array"]

#: Messages nested in each other before the message of a body.
_INDEXES_MAX: Final = 32


class ProtobufDecoder:
    """Decodes a column of Protobuf bodies to one structure type, field by field name."""

    def __init__(
        self, kind: "pa.StructType", *, descriptors: bytes = b"", message: str = "", registry: str = ""
    ) -> None:
        self._kind = kind
        self._registry = registry
        self._by_class: dict[Any, _Messages] = {}
        self._reader: _Messages | None = None
        if descriptors:
            self._reader = self._of(message_class(descriptors, message))

    def decode(self, bodies: "pa.Array") -> Decoded:
        """Decode the bodies of one batch."""
        given = bodies.to_pylist()
        rows = {index: body for index, body in enumerate(given) if body}
        if not self._registry:
            assert self._reader is not None
            return self._put_together(len(given), [(self._reader, rows)], {})
        bad: dict[int, str] = {}
        parts: dict[_Messages, dict[int, bytes]] = {}
        for index, body in rows.items():
            try:
                schema_id, indexes, start = header(body)
                reader = self._reader or self._written_with(schema_id, indexes)
            except ConfigError:
                # Not a fault of the body, although it is a `ValueError`, too.
                raise
            except ValueError as error:
                bad[index] = str(error)
            else:
                parts.setdefault(reader, {})[index] = body[start:]
        return self._put_together(len(given), list(parts.items()), bad)

    def _put_together(
        self, count: int, parts: "list[tuple[_Messages, dict[int, bytes]]]", bad: dict[int, str]
    ) -> Decoded:
        pa = pyarrow("bodies as Protobuf")
        if len(parts) == 1 and len(parts[0][1]) == count:
            return parts[0][0].decode(list(parts[0][1].values()))
        arrays = []
        for reader, rows in parts:
            found, numbers = reader.decode(list(rows.values())), list(rows)
            bad |= {numbers[index]: reason for index, reason in found.bad.items()}
            arrays.append((pa.array(numbers, pa.int64()), found.values))
        return Decoded(scattered(arrays, count, self._kind), dict(sorted(bad.items())))

    def _written_with(self, schema_id: int, indexes: tuple[int, ...]) -> "_Messages":
        kind, descriptors, file = registries.descriptors_of(self._registry, schema_id)
        if kind != "PROTOBUF":
            raise ValueError(f"schema {schema_id} is of {kind}")
        return self._of(message_by_indexes(descriptors, file, indexes))

    def _of(self, message: Any) -> "_Messages":
        if message not in self._by_class:
            self._by_class[message] = _Messages(message, self._kind)
        return self._by_class[message]


def header(body: bytes) -> tuple[int, tuple[int, ...], int]:
    """Return what Confluent's header of a body says: the schema's id, the indexes of the message in it, and the
    position of the message. Raises `ValueError` for a body without such a header."""
    if len(body) < 6 or body[0] != 0:
        raise ValueError("it has no header with the id of a schema")
    count, at = _number(body, 5)
    if not 0 <= count <= _INDEXES_MAX:
        raise ValueError(f"its header has {count} indexes of a message")
    indexes = []
    for _ in range(count):
        index, at = _number(body, at)
        indexes.append(index)
    # The first message of a schema, which most bodies are, is written as no index.
    return int.from_bytes(body[1:5], "big", signed=True), tuple(indexes) or (0,), at


def with_header(schema_id: int, indexes: Sequence[int]) -> bytes:
    """Return the header of a message at these indexes of a schema."""
    start = b"\0" + schema_id.to_bytes(4, "big")
    if tuple(indexes) == (0,):
        return start + b"\0"
    return start + b"".join(map(_varint, (len(indexes), *indexes)))


def _varint(value: int) -> bytes:
    rest, out = value << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag number of at most 32 bits."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise ValueError("its header has no indexes of a message")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


class _Messages:
    """Decodes bodies of one message."""

    def __init__(self, message: Any, kind: "pa.StructType") -> None:
        self._parse = message.FromString
        self._column = _structure(message.DESCRIPTOR, message, kind)
        self._empty = message()
        self._damaged = protobuf("google.protobuf.message").DecodeError

    def decode(self, bodies: list[bytes]) -> Decoded:
        """Decode bodies without header."""
        pa = pyarrow("bodies as Protobuf")
        bad: dict[int, str] = {}
        try:
            messages = list(map(self._parse, bodies))
        except self._damaged:
            messages = []
            for index, body in enumerate(bodies):
                try:
                    messages.append(self._parse(body))
                except self._damaged as error:
                    messages.append(self._empty)
                    bad[index] = _reason(error)
        values = self._fitting(messages, 0, bad)
        if bad:
            rows = [None if index in bad else index for index in range(len(bodies))]
            values = values.take(pa.array(rows, pa.int64()))
        return Decoded(values, dict(sorted(bad.items())))

    def _fitting(self, messages: list[Any], first: int, bad: dict[int, str]) -> "pa.StructArray":
        """Return the column of messages. A message with a value that its type does not hold, such as a time beyond
        Arrow's, becomes an empty one, and is noted."""
        from pyarrow import ArrowException, concat_arrays

        try:
            return self._column(messages)
        except (ArrowException, ValueError, OverflowError) as error:
            if len(messages) == 1:
                bad.setdefault(first, _reason(error))
                return self._column([self._empty])
        half = len(messages) // 2
        return concat_arrays(
            [
                self._fitting(messages[:half], first, bad),
                self._fitting(messages[half:], first + half, bad),
            ]
        )


def _reason(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__


def _structure(descriptor: Any, message: Any, kind: "pa.StructType") -> _Column:
    """Return the conversion of messages to a structure. Raises `ConfigError` if a field cannot be of its type."""
    pa = pyarrow("bodies as Protobuf")
    known = descriptor.fields_by_name
    columns: list[_Column] = []
    for field in kind:
        if field.name in known:
            columns.append(_field(known[field.name], field.type))
        else:
            columns.append(_missing(field.type))
    fields = list(kind)

    def convert(messages: Sequence[Any]) -> Any:
        return pa.StructArray.from_arrays([column(messages) for column in columns], fields=fields)

    return convert


def _missing(kind: "pa.DataType") -> _Column:
    pa = pyarrow("bodies as Protobuf")
    return lambda messages: pa.nulls(len(messages), kind)


def _field(field: Any, kind: "pa.DataType") -> _Column:
    pa = pyarrow("bodies as Protobuf")
    types, name, get = pa.types, field.name, attrgetter(field.name)
    if is_map(field):
        if not types.is_map(kind):
            raise _unfit(field, kind)
        items = _values(field.message_type.fields_by_name["value"], kind.item_type)

        def convert_map(messages: Sequence[Any]) -> Any:
            maps = [get(each) for each in messages]
            keys = pa.array([_key(key) for each in maps for key in each], pa.string())
            values = items([each[key] for each in maps for key in each])
            return pa.MapArray.from_arrays(_offsets(maps), keys, values, type=kind)

        return convert_map
    if is_repeated(field):
        if not types.is_list(kind):
            raise _unfit(field, kind)
        elements = _values(field, kind.value_type)

        def convert_list(messages: Sequence[Any]) -> Any:
            lists = [get(each) for each in messages]
            values = elements(list(chain.from_iterable(lists)))
            return pa.ListArray.from_arrays(_offsets(lists), values, type=kind)

        return convert_list
    values = _values(field, kind)
    if not field.has_presence:
        return lambda messages: values(list(map(get, messages)))
    return lambda messages: values([get(each) if each.HasField(name) else None for each in messages])


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(key).lower() if isinstance(key, bool) else str(key)


def _offsets(collections: Sequence[Any]) -> "pa.Array":
    pa = pyarrow("bodies as Protobuf")
    return pa.array(accumulate(map(len, collections), initial=0), pa.int32())


def _values(field: Any, kind: "pa.DataType") -> _Column:
    """Return the conversion of values of a field, some of them `None`."""
    pa = pyarrow("bodies as Protobuf")
    types = pa.types
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP and not types.is_struct(kind):
            return _cast(field, pa.timestamp("us", "UTC"), kind, _times)
        if not types.is_struct(kind):
            raise _unfit(field, kind)
        message = protobuf("google.protobuf.message_factory").GetMessageClass(field.message_type)
        inner, empty = _structure(field.message_type, message, kind), message()

        def convert(messages: Sequence[Any]) -> Any:
            found = inner([empty if each is None else each for each in messages])
            if None not in messages:
                return found
            missing = pa.array([each is None for each in messages])
            return pa.StructArray.from_arrays(found.flatten(), fields=list(kind), mask=missing)

        return convert
    if field.enum_type is not None and not types.is_integer(kind):
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()} | {
            None: None
        }

        def texts(numbers: Sequence[Any]) -> Any:
            # A number that the enumeration does not name is as text.
            return pa.array([names[each] if each in names else str(each) for each in numbers], pa.string())

        return _cast(field, pa.string(), kind, texts)
    natural = pa.int32() if field.enum_type is not None else single_type(field)
    return _cast(field, natural, kind, lambda values: pa.array(values, natural))


def _cast(field: Any, natural: "pa.DataType", kind: "pa.DataType", convert: _Column) -> _Column:
    """Return a conversion to the type that the reader wants."""
    pa = pyarrow("bodies as Protobuf")
    if natural == kind:
        return convert
    try:
        pa.nulls(0, natural).cast(kind)
    except pa.ArrowException:
        raise _unfit(field, kind) from None
    return lambda values: convert(values).cast(kind)


def _times(values: Sequence[Any]) -> "pa.Array":
    pa = pyarrow("bodies as Protobuf")
    micros = [None if each is None else each.seconds * 1_000_000 + each.nanos // 1000 for each in values]
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))


def _unfit(field: Any, kind: "pa.DataType") -> ConfigError:
    return ConfigError(f"field {field.full_name!r} is {field_type(field)}, which cannot be read as {kind}")
