"""Columns of a read with typed bodies: the columns of messages that it needs, and the shape of its batches.

Bodies are decoded only if the body, or what is wrong with it, was asked for, and only in the fields that were asked
for. One instance is for one read and one thread.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies.arrow import pyarrow
from rmqpy.bodies.format import BodyFormat
from rmqpy.bodies.header import schema_ids
from rmqpy.errors import DecodeError

if TYPE_CHECKING:
    import pyarrow as pa

BODY: Final = "body"
#: The body itself, where it could not be decoded.
CORRUPT: Final = "_corrupt_body"
#: The id in Confluent's header.
SCHEMA_ID: Final = "bodySchemaId"
#: Columns that only a read with typed bodies has, and their types.
EXTRA: Final[Mapping[str, str]] = {CORRUPT: "binary", SCHEMA_ID: "int"}
#: Name a message in an error.
_PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")


class BodyCounts:
    """Bodies decoded so far, and those that could not be."""

    def __init__(self) -> None:
        self.decoded = 0
        self.corrupt = 0
        #: The reason of the first.
        self.first: str | None = None

    def __repr__(self) -> str:
        return f"<BodyCounts decoded={self.decoded} corrupt={self.corrupt}>"


class TypedColumns:
    """Shapes batches of raw messages into the asked columns."""

    def __init__(
        self, asked: Mapping[str, str], bodies: BodyFormat, kind: "pa.StructType | None" = None
    ) -> None:
        """`asked`: column → type in a range read, in order. The type of typed columns is ignored. `kind`: the structure
        of the column `body`, if it has fewer fields than the format."""
        self.counts = BodyCounts()
        self._names = list(asked)
        self._bodies = bodies
        self._is_decoded = bodies.is_typed and not {BODY, CORRUPT}.isdisjoint(asked)
        self._has_header = bodies.has_header and SCHEMA_ID in asked
        self._kind = kind
        if self._kind is None and self._is_decoded:
            self._kind = bodies.kind()
        self._decoder = bodies.decoder(self._kind) if self._is_decoded else None
        #: Column → type to ask messages for.
        self.native: dict[str, str] = {name: kind for name, kind in asked.items() if name not in EXTRA}
        if self._is_decoded or self._has_header:
            self.native[BODY] = "binary"
        if self._is_decoded and bodies.mode == "FAILFAST":
            self.native = dict.fromkeys(_PLACE, "") | self.native
        if not self.native:
            # Rows need a column to be counted by.
            self.native["queueOffset"] = "bigint"
        self.native = {name: kind or _PLACE_TYPES[name] for name, kind in self.native.items()}

    @property
    def is_plain(self) -> bool:
        """Whether batches are what brokers' messages are, unshaped."""
        return self._names == list(self.native) and not self._is_decoded

    def schema(self, native: "pa.Schema") -> "pa.Schema":
        """Return the schema of shaped batches, from that of the messages."""
        pa = pyarrow("typed bodies")
        types = {BODY: self._kind, CORRUPT: pa.binary(), SCHEMA_ID: pa.int32()}
        return pa.schema(
            [
                pa.field(name, types[name])
                if name in EXTRA or (name == BODY and self._is_decoded)
                else native.field(name)
                for name in self._names
            ]
        )

    def shaped(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """Shape a batch. Raises `DecodeError` for a bad body if the mode is FAILFAST."""
        if self.is_plain:
            return batch
        pa = pyarrow("typed bodies")
        columns: dict[str, Any] = {}
        kept = None
        if self._decoder is not None:
            bodies = batch.column(batch.schema.get_field_index(BODY))
            decoded = self._decoder.decode(bodies)
            self.counts.decoded += len(bodies) - len(decoded.bad)
            self.counts.corrupt += len(decoded.bad)
            columns[BODY] = decoded.values
            if decoded.bad:
                row, reason = next(iter(decoded.bad.items()))
                self.counts.first = self.counts.first or reason
                if self._bodies.mode == "FAILFAST":
                    raise self._failure(batch, row, reason)
                is_bad = _mask(decoded.bad, len(bodies))
                if self._bodies.mode == "DROPMALFORMED":
                    from pyarrow import compute

                    kept = compute.invert(is_bad)
            if CORRUPT in self._names:
                from pyarrow import compute

                columns[CORRUPT] = (
                    compute.if_else(is_bad, bodies, pa.scalar(None, bodies.type))
                    if decoded.bad
                    else pa.nulls(len(bodies), pa.binary())
                )
        if self._has_header:
            columns[SCHEMA_ID] = schema_ids(batch.column(batch.schema.get_field_index(BODY)))
        arrays = [
            columns[name] if name in columns else batch.column(batch.schema.get_field_index(name))
            for name in self._names
        ]
        shaped = pa.RecordBatch.from_arrays(arrays, schema=self.schema(batch.schema))
        return shaped if kept is None else shaped.filter(kept)

    def _failure(self, batch: "pa.RecordBatch", row: int, reason: str) -> DecodeError:
        topic, broker, queue_id, offset = (
            batch.column(batch.schema.get_field_index(name))[row].as_py() for name in _PLACE
        )
        return DecodeError(
            f"the body of {topic}/{broker}/{queue_id} at offset {offset} is not {self._bodies.name} "
            f"of the schema: {reason}",
            topic=topic,
            broker=broker,
            hint="mode PERMISSIVE keeps such messages, with the body in _corrupt_body",
        )


_PLACE_TYPES: Final = {"topic": "string", "brokerName": "string", "queueId": "int", "queueOffset": "bigint"}


def _mask(rows: Mapping[int, str], count: int) -> "pa.BooleanArray":
    flags = [False] * count
    for row in rows:
        flags[row] = True
    return pyarrow("typed bodies").array(flags)
