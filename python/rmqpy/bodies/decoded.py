"""The outcome of decoding a column of bodies, and the path body by body that all formats share."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rmqpy.bodies.arrow import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

#: Decodes one body into a dictionary by field, or raises `ValueError`.
DecodeOne = Callable[[bytes], dict[str, Any] | None]


class Decoded(NamedTuple):
    """A column of bodies as structures. A body that cannot be decoded is null, as is an empty one."""

    values: "pa.StructArray"
    #: Index → reason of each body that cannot be decoded.
    bad: dict[int, str]


class Decoder(Protocol):
    """Decodes columns of bodies to one structure type."""

    def decode(self, bodies: "pa.Array") -> Decoded:
        """Decode the bodies of one batch."""


def one_by_one(bodies: "pa.Array", kind: "pa.StructType", decode: DecodeOne) -> Decoded:
    """Decode bodies separately, each with its own outcome."""
    pa = pyarrow("typed bodies")
    rows: list[Any] = []
    bad: dict[int, str] = {}
    for index, body in enumerate(bodies.to_pylist()):
        row = None
        if body:
            try:
                row = decode(body)
            except (ValueError, RecursionError, ArithmeticError) as error:
                bad[index] = str(error)[:200] or type(error).__name__
        rows.append(row)
    return Decoded(pa.array(rows, kind), bad)


#: Bodies that are decoded separately after their neighbours could not be decoded as a whole.
SEGMENT_ROWS = 256


def in_segments(
    bodies: "pa.Array",
    kind: "pa.StructType",
    whole: Callable[["pa.Array"], "pa.StructArray | None"],
    decode: DecodeOne,
) -> Decoded:
    """Decode bodies as a whole, or else in segments, so that one bad body slows only its segment down."""
    pa = pyarrow("typed bodies")
    found = whole(bodies)
    if found is not None:
        return Decoded(found, {})
    if len(bodies) <= SEGMENT_ROWS:
        return one_by_one(bodies, kind, decode)
    parts: list[Any] = []
    bad: dict[int, str] = {}
    for start in range(0, len(bodies), SEGMENT_ROWS):
        segment = bodies.slice(start, SEGMENT_ROWS)
        values = whole(segment)
        if values is None:
            values, faults = one_by_one(segment, kind, decode)
            bad |= {start + index: reason for index, reason in faults.items()}
        parts.append(values)
    return Decoded(pa.concat_arrays(parts), bad)


def scattered(
    parts: "list[tuple[Any, pa.StructArray]]", count: int, kind: "pa.StructType"
) -> "pa.StructArray":
    """Put arrays back to their rows: pairs of row numbers and values. Other rows are null."""
    pa = pyarrow("typed bodies")
    sources: list[int | None] = [None] * count
    base = 0
    for rows, values in parts:
        for offset, row in enumerate(rows.to_pylist()):
            sources[row] = base + offset
        base += len(values)
    values = pa.concat_arrays([values for _, values in parts]) if parts else pa.nulls(0, kind)
    return values.take(pa.array(sources, pa.int64()))


def narrowed(values: "pa.StructArray", kind: "pa.StructType") -> "pa.StructArray":
    """Return a structure with the fields of another type, by name."""
    pa = pyarrow("typed bodies")
    if values.type == kind:
        return values
    from pyarrow import compute

    known = {field.name for field in values.type}
    columns = [
        compute.struct_field(values, field.name).cast(field.type)
        if field.name in known
        else pa.nulls(len(values), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=compute.is_null(values))
