"""Avro bodies decoded as columns with NumPy: each step reads one field of all bodies.

A cursor has the position of each body in the joined bytes. A position that leaves its body reads bytes of another, or a
zero behind the last one, and never comes back: the body is bad in the end, and its values are dropped.
"""

from typing import TYPE_CHECKING, Any

import numpy
import pyarrow

from rmqpy.bodies.avro_schema import AvroType, arrow_type
from rmqpy.bodies.decoded import Decoded

if TYPE_CHECKING:
    import pyarrow as pa

_REASON = "it does not end where its schema ends"


def decode(bodies: "pa.Array", schema: AvroType, wanted: set[str]) -> Decoded | None:
    """Decode bodies, and keep the wanted fields. Returns `None` if a text is not UTF-8: some body has to tell which."""
    cursor = _Cursor.over(bodies)
    is_empty = cursor.position == cursor.end
    names: list[str] = []
    columns: list[Any] = []
    for name, each in schema.fields:
        column = _read(cursor, each, is_wanted=name in wanted)
        if name in wanted:
            names.append(name)
            columns.append(column)
    is_bad = (cursor.bad | (cursor.position != cursor.end)) & ~is_empty
    missing = is_bad | is_empty
    try:
        # A bad body may have any bytes as text.
        columns = [_checked(column, missing) for column in columns]
    except (pyarrow.ArrowInvalid, UnicodeDecodeError):
        return None
    if columns:
        fields = [pyarrow.field(name, column.type) for name, column in zip(names, columns, strict=True)]
        values = pyarrow.StructArray.from_arrays(columns, fields=fields, mask=pyarrow.array(missing))
    else:
        values = pyarrow.array([None if each else {} for each in missing], pyarrow.struct([]))
    return Decoded(values, dict.fromkeys(numpy.flatnonzero(is_bad).tolist(), _REASON))


class _Cursor:
    """Positions in bodies."""

    def __init__(self, data: Any, position: Any, end: Any, bad: Any) -> None:
        self.data = data
        self.position = position
        self.end = end
        self.bad = bad

    @classmethod
    def over(cls, bodies: "pa.Array") -> "_Cursor":
        """Return a cursor at the begin of each body. Null bodies are empty."""
        bodies = bodies.fill_null(b"")
        _, offset_buffer, data_buffer = bodies.buffers()
        offsets = numpy.frombuffer(offset_buffer, numpy.int32)[
            bodies.offset : bodies.offset + len(bodies) + 1
        ]
        offsets = offsets.astype(numpy.int64)
        size = int(offsets[-1])
        data = numpy.zeros(size + 16, numpy.uint8)
        if data_buffer is not None:
            data[:size] = numpy.frombuffer(data_buffer, numpy.uint8)[:size]
        return cls(data, offsets[:-1].copy(), offsets[1:], numpy.zeros(len(bodies), bool))

    def part(self, rows: Any) -> "_Cursor":
        """Return a cursor over some of the bodies."""
        return _Cursor(self.data, self.position[rows], self.end[rows], self.bad[rows])

    def join(self, rows: Any, part: "_Cursor") -> None:
        """Take over the positions of a part."""
        self.position[rows] = part.position
        self.bad[rows] = part.bad

    def bytes_at(self, position: Any) -> Any:
        """Return the byte at each position."""
        return self.data[numpy.minimum(position, len(self.data) - 1)]

    def longs(self) -> Any:
        """Read a number of variable length from each body."""
        position = self.position
        byte = self.bytes_at(position)
        value = (byte & 0x7F).astype(numpy.uint64)
        position += 1
        rows = numpy.flatnonzero(byte >= 0x80)
        shift = 7
        while len(rows):
            if shift > 63:
                self.bad[rows] = True
                break
            byte = self.bytes_at(position[rows])
            value[rows] |= (byte & 0x7F).astype(numpy.uint64) << numpy.uint64(shift)
            position[rows] += 1
            rows = rows[byte >= 0x80]
            shift += 7
        one = numpy.uint64(1)
        return (value >> one).view(numpy.int64) ^ -(value & one).view(numpy.int64)

    def fixed(self, size: int) -> Any:
        """Read bytes of a fixed number from each body: a matrix with a row for each."""
        at = (
            numpy.minimum(self.position, len(self.data) - size)
            if len(self.data) >= size
            else self.position * 0
        )
        rows = self.data[at[:, None] + numpy.arange(size)] if len(self.data) >= size else None
        self.position += size
        return rows

    def blobs(self) -> "pa.Array":
        """Read bytes of variable length from each body."""
        sizes = self.longs()
        left = self.end - self.position
        is_bad = (sizes < 0) | (sizes > left)
        self.bad |= is_bad
        sizes = numpy.where(is_bad, 0, sizes)
        ends = numpy.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        offsets = numpy.zeros(len(sizes) + 1, numpy.int32)
        offsets[1:] = ends
        # The place of each byte: its own number, moved by as much as its value is.
        moved = numpy.repeat(self.position - (ends - sizes), sizes)
        data = self.data[moved + numpy.arange(total)]
        self.position += sizes
        return pyarrow.Array.from_buffers(
            pyarrow.binary(), len(sizes), [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)]
        )

    def skip_blobs(self) -> None:
        """Skip bytes of variable length in each body."""
        sizes = self.longs()
        is_bad = (sizes < 0) | (sizes > self.end - self.position)
        self.bad |= is_bad
        self.position += numpy.where(is_bad, 0, sizes)


def _read(cursor: _Cursor, of: AvroType, *, is_wanted: bool) -> Any:
    """Read one field of all bodies as a column. A field that is not wanted is skipped, and `None`."""
    if (nullable := of.nullable) is not None:
        null_at, inner = nullable
        branch = cursor.longs()
        cursor.bad |= (branch < 0) | (branch > 1)
        rows = numpy.flatnonzero(branch == 1 - null_at)
        part = cursor.part(rows)
        values = _read(part, inner, is_wanted=is_wanted)
        cursor.join(rows, part)
        if values is None:
            return None
        sources = numpy.zeros(len(branch), numpy.int64)
        sources[rows] = numpy.arange(len(rows))
        return values.take(pyarrow.array(sources, mask=branch != 1 - null_at))
    if of.kind == "record":
        columns = [(name, _read(cursor, each, is_wanted=is_wanted)) for name, each in of.fields]
        if not is_wanted:
            return None
        return pyarrow.StructArray.from_arrays(
            [column for _, column in columns],
            fields=[pyarrow.field(name, column.type) for name, column in columns],
        )
    if of.kind in ("string", "bytes"):
        if is_wanted:
            return cursor.blobs() if of.kind == "bytes" else _Text.of(cursor.blobs())
        cursor.skip_blobs()
        return None
    values = _numbers(cursor, of)
    return _as_column(values, of) if is_wanted else None


class _Text:
    """Marks bytes that are text, to be checked when bad bodies are known."""

    @staticmethod
    def of(blobs: "pa.Array") -> "pa.Array":
        """Return the bytes under a type that no Avro value has."""
        return blobs.cast(pyarrow.large_binary())


def _numbers(cursor: _Cursor, of: AvroType) -> Any:
    match of.kind:
        case "int" | "long":
            return cursor.longs()
        case "enum":
            index = cursor.longs()
            is_bad = (index < 0) | (index >= len(of.symbols))
            cursor.bad |= is_bad
            return numpy.where(is_bad, 0, index)
        case "boolean":
            byte = cursor.fixed(1)[:, 0]
            cursor.bad |= byte > 1
            return byte == 1
        case "float":
            return cursor.fixed(4).view("<f4")[:, 0]
        case "double":
            return cursor.fixed(8).view("<f8")[:, 0]
    size = of.size
    left = cursor.end - cursor.position
    cursor.bad |= left < size
    return cursor.fixed(size)


def _as_column(values: Any, of: AvroType) -> "pa.Array":
    kind = arrow_type(of)
    match of.kind:
        case "enum":
            symbols = pyarrow.array(of.symbols or [""], pyarrow.string())
            return symbols.take(pyarrow.array(values))
        case "fixed":
            offsets = numpy.arange(len(values) + 1, dtype=numpy.int32) * of.size
            return pyarrow.Array.from_buffers(
                kind,
                len(values),
                [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(numpy.ascontiguousarray(values))],
            )
        case "int":
            # A bad body may have any number.
            narrow = values.astype(numpy.int32)
            return pyarrow.array(narrow).view(kind) if of.logical == "date" else pyarrow.array(narrow)
        case "long" if pyarrow.types.is_timestamp(kind):
            micros = values * 1000 if of.logical.endswith("millis") else values
            return pyarrow.array(micros).view(kind)
    return pyarrow.array(values)


def _checked(column: "pa.Array", missing: Any) -> "pa.Array":
    """Turn marked bytes into text. Raises `ArrowInvalid` for text of a good body that is not UTF-8."""
    kind = column.type
    if pyarrow.types.is_struct(kind):
        children = [_checked(child, missing | ~_valid(column)) for child in column.flatten()]
        fields = [pyarrow.field(field.name, child.type) for field, child in zip(kind, children, strict=True)]
        return pyarrow.StructArray.from_arrays(children, fields=fields, mask=pyarrow.array(~_valid(column)))
    if not pyarrow.types.is_large_binary(kind):
        return column
    if missing.any():
        nothing = pyarrow.scalar(None, kind)
        column = pyarrow.compute.if_else(pyarrow.array(~missing), column, nothing)
    return column.cast(pyarrow.binary()).cast(pyarrow.string())


def _valid(column: "pa.Array") -> Any:
    return column.is_valid().to_numpy(zero_copy_only=False)
