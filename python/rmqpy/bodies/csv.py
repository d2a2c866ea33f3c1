"""CSV bodies: one record in each, without a header.

Whole columns are decoded by Arrow's CSV reader, if no body contains a line break. A quote that is not closed would
take in the next body, and is found by the number of records.
"""

import csv
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies import coercion
from rmqpy.bodies.arrow import pyarrow
from rmqpy.bodies.decoded import Decoded, DecodeOne, in_segments, one_by_one
from rmqpy.bodies.json import _values
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES_MAX: Final = 256 << 20


class CsvDecoder:
    """Decodes a column of CSV bodies to one structure type."""

    def __init__(self, kind: "pa.StructType", separator: str = ",") -> None:
        self._pa = pyarrow("bodies as CSV")
        self._kind = kind
        self._separator = separator
        try:
            self._one = _one(kind, separator)
        except ValueError as error:
            raise ConfigError(f"schema of bodies: {error}") from None
        types = self._pa.types
        # Arrow reads these from text by the same rules as `coercion`.
        self._is_whole = all(
            types.is_string(field.type) or types.is_integer(field.type) or types.is_floating(field.type)
            for field in kind
        )

    def decode(self, bodies: "pa.Array") -> Decoded:
        """Decode the bodies of one batch."""
        from pyarrow import compute

        pa = self._pa
        is_one_line = (
            bodies.null_count == 0
            and not compute.any(compute.match_substring_regex(bodies.cast(pa.binary()), r"[\r\n]")).as_py()
            and not compute.any(compute.equal(compute.binary_length(bodies), 0)).as_py()
        )
        if not self._is_whole or not is_one_line:
            return one_by_one(bodies, self._kind, self._one)
        return in_segments(bodies, self._kind, self._whole, self._one)

    def _whole(self, bodies: "pa.Array") -> "pa.StructArray | None":
        from pyarrow import compute
        from pyarrow import csv as arrow_csv

        pa = self._pa
        if not len(bodies):
            return pa.nulls(0, self._kind)
        if bodies.nbytes > _BYTES_MAX:
            return None
        names = [field.name for field in self._kind]
        try:
            data = _values(compute.binary_join_element_wise(bodies.cast(pa.string()), "", "\n"))
            table = arrow_csv.read_csv(
                pa.BufferReader(data),
                read_options=arrow_csv.ReadOptions(
                    use_threads=False, column_names=names, block_size=len(data) + 1
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._separator, ignore_empty_lines=False, newlines_in_values=True
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types={field.name: field.type for field in self._kind},
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowException:
            return None
        if table.num_rows != len(bodies):
            return None
        table = table.combine_chunks()
        return pa.StructArray.from_arrays(
            [column.chunk(0) for column in table.columns], fields=list(self._kind)
        )


def _one(kind: "pa.StructType", separator: str) -> DecodeOne:
    fields = [(field.name, coercion.of_text(field.type)) for field in kind]

    def decode(body: bytes) -> dict[str, Any] | None:
        text = body.decode().removesuffix("\n").removesuffix("\r")
        try:
            records = list(csv.reader(StringIO(text, newline=""), delimiter=separator, strict=True))
        except csv.Error as error:
            raise ValueError(str(error)) from None
        if len(records) != 1:
            raise ValueError(f"expected one record, not {len(records)}")
        if len(records[0]) != len(fields):
            raise ValueError(f"expected {len(fields)} fields, not {len(records[0])}")
        return {name: coerce(value) for (name, coerce), value in zip(fields, records[0], strict=True)}

    return decode
