"""Avro bodies: one datum in each, without a container, by the schema that it was written with.

With NumPy, a column is decoded field by field for all bodies together; positions advance as vectors. A body is
valid only if its last field ends where the body ends, so a body that is cut short, or written with another schema,
does not touch its neighbours. Arrays, maps and unions of several types are decoded body by body, as is everything
without NumPy.
"""

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies.arrow import pyarrow
from rmqpy.bodies.avro_schema import AvroType, arrow_type, parse
from rmqpy.bodies.decoded import Decoded, narrowed, one_by_one, scattered
from rmqpy.bodies.registry import schema_of

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AvroDecoder:
    """Decodes a column of Avro bodies to one structure type, field by field name."""

    def __init__(self, kind: "pa.StructType", *, avro: str = "", registry: str = "") -> None:
        self._kind = kind
        self._registry = registry
        self._written: dict[str, _Written] = {}
        self._avro = avro

    def decode(self, bodies: "pa.Array") -> Decoded:
        """Decode the bodies of one batch."""
        if not self._registry:
            return self._written_with(self._avro).decode(bodies)
        return self._by_id(bodies)

    def _by_id(self, bodies: "pa.Array") -> Decoded:
        """Decode bodies with a header, those of each schema together."""
        from pyarrow import compute

        from rmqpy.bodies.header import schema_ids, without_header, without_headers

        ids = schema_ids(bodies)
        bad = without_header(bodies, ids)
        parts = []
        for each in compute.unique(ids).to_pylist():
            if each is None:
                continue
            rows = compute.indices_nonzero(compute.fill_null(compute.equal(ids, each), False))
            data = without_headers(bodies.take(rows))
            kind, text = schema_of(self._registry, each)
            if kind != "AVRO":
                bad |= dict.fromkeys(rows.to_pylist(), f"schema {each} is of {kind}")
                continue
            found = self._written_with(text).decode(data)
            bad |= {rows[index].as_py(): reason for index, reason in found.bad.items()}
            parts.append((rows, found.values))
        return Decoded(scattered(parts, len(bodies), self._kind), dict(sorted(bad.items())))

    def _written_with(self, text: str) -> "_Written":
        if text not in self._written:
            self._written[text] = _Written(parse(text), self._kind)
        return self._written[text]


class _Written:
    """Decodes bodies that were written with one schema."""

    def __init__(self, schema: AvroType, kind: "pa.StructType") -> None:
        self._schema = schema
        self._kind = kind
        self._written_kind = arrow_type(schema)
        self._is_whole = find_spec("numpy") is not None and _is_read_whole(schema)

    def decode(self, bodies: "pa.Array") -> Decoded:
        """Decode bodies without header."""
        found = None
        if self._is_whole and len(bodies):
            from rmqpy.bodies.avro_columns import decode

            names = {field.name for field in self._kind}
            found = decode(bodies, self._schema, names)
        if found is None:
            read = _reader(self._schema)

            def one(body: bytes) -> dict[str, Any] | None:
                row, end = read(body, 0)
                if end != len(body):
                    raise ValueError(f"the datum ends at byte {end} of {len(body)}")
                return row  # type: ignore[no-any-return]

            found = one_by_one(bodies, self._written_kind, one)
        return Decoded(narrowed(found.values, self._kind), found.bad)


def _is_read_whole(of: AvroType) -> bool:
    if of.kind == "record":
        return bool(of.fields) and all(_is_read_whole(each) for _, each in of.fields)
    if (nullable := of.nullable) is not None:
        return _is_read_whole(nullable[1])
    return of.kind not in ("union", "array", "map", "null") and of.logical != "decimal"


#: Reads a value at a position: the value, and the position after it.
_Read = Callable[[bytes, int], tuple[Any, int]]


def _reader(of: AvroType) -> _Read:
    """Return the reader of one value. It raises `ValueError` where the bytes end early."""
    match of.kind:
        case "record":
            return _record([(name, _reader(each)) for name, each in of.fields])
        case "union":
            return _union([_reader(each) for each in of.branches], _is_mixed(of))
        case "array" if of.element is not None:
            return _blocks(_reader(of.element), list)
        case "map" if of.element is not None:
            return _blocks(_record([("key", _text), ("value", _reader(of.element))]), _pairs)
        case "enum":
            return _enum(of.symbols)
        case "fixed":
            return _converted(_fixed(of.size), of)
        case "bytes":
            return _converted(_bytes, of)
        case "string":
            return _text
        case "int" | "long":
            return _converted(_long, of)
        case "boolean":
            return _boolean
        case "float":
            return _packed("<f", 4)
        case "double":
            return _packed("<d", 8)
    return lambda data, at: (None, at)


def _is_mixed(of: AvroType) -> bool:
    """Return whether a union's column is text, because its branches have different types."""
    types = pyarrow("bodies as Avro").types
    branches = [branch for branch in of.branches if branch.kind != "null"]
    return len(branches) > 1 and bool(types.is_string(arrow_type(of)))


def _long(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the body ends within a number" if at >= len(data) else "a number is too long")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    if not 0 <= size <= len(data) - at:
        raise ValueError(f"a value of {size} bytes does not fit into the body")
    return data[at : at + size], at + size


def _text(data: bytes, at: int) -> tuple[str, int]:
    value, at = _bytes(data, at)
    return value.decode(), at


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if at >= len(data) or data[at] > 1:
        raise ValueError("a boolean is neither 0 nor 1")
    return data[at] == 1, at + 1


def _fixed(size: int) -> _Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            raise ValueError("the body ends within a value")
        return data[at : at + size], at + size

    return read


def _packed(form: str, size: int) -> _Read:
    fixed = _fixed(size)

    def read(data: bytes, at: int) -> tuple[float, int]:
        value, at = fixed(data, at)
        return struct.unpack(form, value)[0], at

    return read


def _enum(symbols: list[str]) -> _Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        index, at = _long(data, at)
        if not 0 <= index < len(symbols):
            raise ValueError(f"an enumeration has no symbol {index}")
        return symbols[index], at

    return read


def _record(fields: list[tuple[str, _Read]]) -> _Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        row = {}
        for name, each in fields:
            row[name], at = each(data, at)
        return row, at

    return read


def _union(branches: list[_Read], is_mixed: bool) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, at = _long(data, at)
        if not 0 <= index < len(branches):
            raise ValueError(f"a union has no branch {index}")
        value, at = branches[index](data, at)
        if is_mixed and value is not None and not isinstance(value, str):
            import json

            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str), at
        return value, at

    return read


def _blocks(item: _Read, collect: Callable[[list[Any]], Any]) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        found: list[Any] = []
        while True:
            count, at = _long(data, at)
            if count == 0:
                return collect(found), at
            if count < 0:
                # The size in bytes, to skip the block.
                count = -count
                _, at = _long(data, at)
            if count > len(data) - at + 1:
                raise ValueError(f"a block of {count} items does not fit into the body")
            for _ in range(count):
                value, at = item(data, at)
                found.append(value)

    return read


def _pairs(entries: list[Any]) -> list[tuple[str, Any]]:
    return list({entry["key"]: entry["value"] for entry in entries}.items())


def _converted(read: _Read, of: AvroType) -> _Read:
    """Convert the values of a logical type."""
    match of.logical:
        case "date":
            return _mapped(read, lambda days: date(1970, 1, 1) + timedelta(days=days))
        case "timestamp-millis":
            return _mapped(read, lambda ms: _EPOCH + timedelta(milliseconds=ms))
        case "timestamp-micros":
            return _mapped(read, lambda us: _EPOCH + timedelta(microseconds=us))
        case "local-timestamp-millis":
            return _mapped(read, lambda ms: (_EPOCH + timedelta(milliseconds=ms)).replace(tzinfo=None))
        case "local-timestamp-micros":
            return _mapped(read, lambda us: (_EPOCH + timedelta(microseconds=us)).replace(tzinfo=None))
        case "decimal" if of.kind in ("bytes", "fixed"):
            return _mapped(
                read, lambda data: Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-of.scale)
            )
    return read


def _mapped(read: _Read, convert: Callable[[Any], Any]) -> _Read:
    def mapped(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read(data, at)
        return convert(value), at

    return mapped
