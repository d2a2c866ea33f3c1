"""The format of bodies in a topic: its name, schema and mode, as plain values that travel to other processes."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from rmqpy.bodies.arrow import pyarrow
from rmqpy.bodies.decoded import Decoded, Decoder, narrowed
from rmqpy.bodies.header import HeadedDecoder
from rmqpy.bodies.types import fields_ddl, parse_schema
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

FormatName = Literal["raw", "json", "csv", "avro"]
#: Spark's modes: a body that cannot be decoded is null, its row is dropped, or the read fails.
Mode = Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]

FORMATS: Final[tuple[str, ...]] = get_args(FormatName)
MODES: Final[tuple[str, ...]] = get_args(Mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyFormat:
    """The format of bodies. Picklable; equal formats are equal values."""

    name: FormatName
    #: The fields as DDL. Empty until they are sampled, or taken from the Avro schema.
    schema: str = ""
    mode: Mode = "PERMISSIVE"
    #: Between the fields of CSV.
    separator: str = ","
    #: The schema that Avro bodies were written with, as JSON.
    avro: str = ""
    #: The address of a schema registry. Bodies then begin with Confluent's header: a zero byte and the schema's id.
    registry: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        schema: Any = None,
        *,
        mode: str = "PERMISSIVE",
        separator: str = ",",
        registry: str | None = None,
    ) -> "BodyFormat":
        """Return a checked format. Raises `ConfigError`."""
        if name not in FORMATS:
            raise ConfigError(f"body format {name!r}: use {', '.join(FORMATS)}")
        if mode.upper() not in MODES:
            raise ConfigError(f"mode {mode!r}: use {', '.join(MODES)}")
        if name == "csv" and len(separator) != 1:
            raise ConfigError(f"separator {separator!r}: use one character")
        if name == "raw" and (schema is not None or registry):
            raise ConfigError(
                "a schema of bodies needs a format", hint="set the body format to json, csv or avro"
            )
        if name == "csv" and registry:
            raise ConfigError("a schema registry has no schemas of CSV")
        avro = ""
        if name == "avro" and isinstance(schema, str) and schema.lstrip()[:1] in ("{", "["):
            avro, schema = schema, None
        made = cls(
            name=name,  # type: ignore[arg-type]
            schema=_as_ddl(schema),
            mode=mode.upper(),  # type: ignore[arg-type]
            separator=separator,
            avro=avro,
            registry=registry or "",
        )
        if name == "avro" and avro:
            from rmqpy.bodies.avro_schema import arrow_type, parse

            return replace(made, schema=fields_ddl(arrow_type(parse(avro))))
        if name == "avro" and not registry:
            raise ConfigError(
                "Avro bodies need the schema that they were written with",
                hint="give it as JSON, or give a schema registry",
            )
        return made

    @property
    def is_typed(self) -> bool:
        """Whether bodies are decoded at all."""
        return self.name != "raw"

    @property
    def has_header(self) -> bool:
        """Whether bodies begin with the id of a schema."""
        return bool(self.registry)

    def with_schema(self, kind: "pa.StructType") -> "BodyFormat":
        """Return the same format with these fields."""
        return replace(self, schema=fields_ddl(kind))

    def kind(self) -> "pa.StructType":
        """Return the structure type of decoded bodies. Raises `ConfigError` without a schema."""
        if not self.schema:
            raise ConfigError(f"bodies as {self.name} need a schema", hint="give one, or have it sampled")
        return parse_schema(self.schema)

    def decoder(self, kind: "pa.StructType | None" = None) -> Decoder:
        """Return a decoder to the structure type, or to a narrower one."""
        kind = self.kind() if kind is None else kind
        match self.name:
            case "json":
                from rmqpy.bodies.json import JsonDecoder

                decoder = JsonDecoder(kind)
                return HeadedDecoder(decoder) if self.registry else decoder
            case "csv":
                from rmqpy.bodies.csv import CsvDecoder

                if not self.schema:
                    return CsvDecoder(kind, self.separator)
                # Fields have no names in CSV: all are read, and those not asked for are dropped.
                return _Narrowed(CsvDecoder(self.kind(), self.separator), kind)
            case "avro":
                from rmqpy.bodies.avro import AvroDecoder

                return AvroDecoder(kind, avro=self.avro, registry=self.registry)
        raise ConfigError("raw bodies are not decoded")


class _Narrowed:
    """A decoder of which some fields are kept."""

    def __init__(self, decoder: Decoder, kind: "pa.StructType") -> None:
        self._decoder = decoder
        self._kind = kind

    def decode(self, bodies: "pa.Array") -> Decoded:
        """Decode the bodies of one batch."""
        decoded = self._decoder.decode(bodies)
        return Decoded(narrowed(decoded.values, self._kind), decoded.bad)


def _as_ddl(schema: Any) -> str:
    if schema is None:
        return ""
    if isinstance(schema, str):
        # Parsed once to find faults early, and stored in one spelling.
        return fields_ddl(parse_schema(schema))
    pa = pyarrow("a schema of bodies")
    if isinstance(schema, pa.Schema):
        schema = pa.struct(list(schema))
    if isinstance(schema, pa.DataType) and pa.types.is_struct(schema):
        return fields_ddl(schema)
    raise ConfigError(f"a schema of bodies is DDL or a schema of pyarrow, not {type(schema).__name__}")
