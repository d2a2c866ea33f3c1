"""JSON bodies: one object in each.

Whole columns are decoded by Arrow's JSON reader, which skips fields without a column. It reads bodies as one
text, so each must be exactly one object, or a body could take part in its neighbour. Three checks ensure that: a
body begins with `{` and ends with `}`; a line break cannot be inside a JSON string, and between `}` and `{` it can
only be at the top level; and there are as many objects as bodies. All others are decoded one by one.
"""

import json
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies import coercion
from rmqpy.bodies.arrow import pyarrow
from rmqpy.bodies.decoded import Decoded, DecodeOne, in_segments, one_by_one, scattered

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes of bodies in one text: Arrow counts the bytes of a block in 31 bits.
_BYTES_MAX: Final = 256 << 20


class JsonDecoder:
    """Decodes a column of JSON bodies to one structure type."""

    def __init__(self, kind: "pa.StructType") -> None:
        self._pa = pa = pyarrow("bodies as JSON")
        self._kind = kind
        self._schema = pa.schema(list(kind))
        self._one = _one(kind)
        self._is_whole = len(self._schema) > 0 and all(_is_read_whole(field.type) for field in kind)

    def decode(self, bodies: "pa.Array") -> Decoded:
        """Decode the bodies of one batch."""
        from pyarrow import compute

        if not self._is_whole or not len(bodies):
            return one_by_one(bodies, self._kind, self._one)
        is_object = compute.and_(compute.starts_with(bodies, "{"), compute.ends_with(bodies, "}"))
        if bodies.null_count == 0 and compute.all(is_object).as_py():
            return in_segments(bodies, self._kind, self._whole, self._one)
        is_object = compute.fill_null(is_object, False)
        rows = compute.indices_nonzero(is_object)
        others = compute.indices_nonzero(compute.invert(is_object))
        fast = in_segments(bodies.take(rows), self._kind, self._whole, self._one)
        slow = one_by_one(bodies.take(others), self._kind, self._one)
        bad = {rows[index].as_py(): reason for index, reason in fast.bad.items()}
        bad |= {others[index].as_py(): reason for index, reason in slow.bad.items()}
        values = scattered([(rows, fast.values), (others, slow.values)], len(bodies), self._kind)
        return Decoded(values, dict(sorted(bad.items())))

    def _whole(self, bodies: "pa.Array") -> "pa.StructArray | None":
        """Decode all bodies together, or return `None`."""
        from pyarrow import compute
        from pyarrow import json as arrow_json

        pa = self._pa
        if not len(bodies):
            return pa.nulls(0, self._kind)
        if bodies.nbytes > _BYTES_MAX:
            return None
        try:
            # The cast finds invalid UTF-8, which the reader would pass on.
            lines = compute.binary_join_element_wise(bodies.cast(pa.string()), "", "\n")
            data = _values(lines)
            table = arrow_json.read_json(
                pa.BufferReader(data),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=self._schema, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowException:
            return None
        if table.num_rows != len(bodies):
            return None
        table = table.combine_chunks()
        columns = [
            column.chunk(0) if column.num_chunks else pa.nulls(0, column.type) for column in table.columns
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self._kind))


def _values(lines: Any) -> Any:
    """Return the bytes of a string array as one buffer, without a copy."""
    import struct

    _, offsets, data = lines.buffers()
    first, last = lines.offset * 4, (lines.offset + len(lines)) * 4
    (begin,) = struct.unpack_from("<i", offsets, first)
    (end,) = struct.unpack_from("<i", offsets, last)
    return data.slice(begin, end - begin)


def _is_read_whole(kind: "pa.DataType") -> bool:
    """Return whether Arrow's reader converts JSON to this type by the same rules as `coercion`."""
    types = pyarrow("bodies as JSON").types
    if types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_read_whole(field.type) for field in kind)
    if types.is_list(kind):
        return _is_read_whole(kind.value_type)
    return bool(
        types.is_string(kind)
        or types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_timestamp(kind)
    )


def _one(kind: "pa.StructType") -> DecodeOne:
    coerce = coercion.of_json(kind)

    def decode(body: bytes) -> dict[str, Any] | None:
        value = json.loads(body.decode())
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, not {type(value).__name__}")
        row: dict[str, Any] | None = coerce(value)
        return row

    return decode
