"""Confluent's header of bodies: a zero byte and the id of the schema, four bytes."""

from typing import TYPE_CHECKING, Final

from rmqpy.bodies.arrow import pyarrow
from rmqpy.bodies.decoded import Decoded, Decoder

if TYPE_CHECKING:
    import pyarrow as pa

HEADER_BYTES: Final = 5


def schema_ids(bodies: "pa.Array") -> "pa.Array":
    """Return the id in Confluent's header of each body, or null without one."""
    pa = pyarrow("bodies with a schema registry")
    from pyarrow import compute

    heads = compute.binary_slice(bodies, 0, 5).to_pylist()
    return pa.array(
        [
            int.from_bytes(head[1:], "big", signed=True) if head and len(head) == 5 and head[0] == 0 else None
            for head in heads
        ],
        pa.int32(),
    )


def without_header(bodies: "pa.Array", ids: "pa.Array") -> dict[int, str]:
    """Return the bodies that have no header, with the reason. Empty ones need none."""
    pyarrow("bodies with a schema registry")
    from pyarrow import compute

    has_body = compute.greater(compute.fill_null(compute.binary_length(bodies), 0), 0)
    rows = compute.indices_nonzero(compute.and_(compute.is_null(ids), has_body))
    return dict.fromkeys(rows.to_pylist(), "it has no header with the id of a schema")


def without_headers(bodies: "pa.Array") -> "pa.Array":
    """Return what follows the headers."""
    from pyarrow import compute

    # Without a stop, Arrow 26 miscounts the bytes of values that are shorter than the start.
    return compute.binary_slice(bodies, HEADER_BYTES, (1 << 31) - 1)


class HeadedDecoder:
    """A decoder of what follows the headers."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def decode(self, bodies: "pa.Array") -> Decoded:
        """Decode the bodies of one batch."""
        bad = without_header(bodies, schema_ids(bodies))
        decoded = self._decoder.decode(without_headers(bodies))
        if not bad:
            return decoded
        pa = pyarrow("bodies with a schema registry")
        rows = [None if row in bad else row for row in range(len(bodies))]
        return Decoded(
            decoded.values.take(pa.array(rows, pa.int64())), dict(sorted((decoded.bad | bad).items()))
        )
