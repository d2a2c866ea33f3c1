"""The format of bodies in a topic: its name, schema and mode, as plain values that travel to other processes."""

import os
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from rmqpy.bodies.arrow import pyarrow
from rmqpy.bodies.decoded import Decoded, Decoder, narrowed
from rmqpy.bodies.header import HeadedDecoder
from rmqpy.bodies.types import fields_ddl, parse_schema
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

FormatName = Literal["raw", "json", "csv", "avro", "protobuf"]
#: Spark's modes: a body that cannot be decoded is null, its row is dropped, or the read fails.
Mode = Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]

FORMATS: Final[tuple[str, ...]] = get_args(FormatName)
MODES: Final[tuple[str, ...]] = get_args(Mode)


#: Bytes of a descriptor set.
_DESCRIPTORS_MAX: Final = 16 << 20


def descriptor_bytes(file: str | PathLike[str]) -> bytes:
    """Return a descriptor set that protoc wrote. Raises `ConfigError`."""
    try:
        with open(file, "rb") as opened:
            found = opened.read(_DESCRIPTORS_MAX + 1)
    except OSError as error:
        raise ConfigError(f"the descriptor file cannot be read: {error}") from None
    if not found or len(found) > _DESCRIPTORS_MAX:
        raise ConfigError(
            f"the descriptor file {os.fspath(file)!r} is empty"
            if not found
            else f"the descriptor file {os.fspath(file)!r} has more than {_DESCRIPTORS_MAX >> 20} MiB",
            hint="write it with protoc --include_imports --descriptor_set_out=FILE",
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyFormat:
    """The format of bodies. Picklable; equal formats are equal values."""

    name: FormatName
    #: The fields as DDL. Empty until they are sampled, or taken from the schema of Avro or Protobuf.
    schema: str = ""
    mode: Mode = "PERMISSIVE"
    #: Between the fields of CSV.
    separator: str = ","
    #: The schema that Avro bodies were written with, as JSON.
    avro: str = ""
    #: The descriptor set of Protobuf bodies, and the full name of their message in it.
    descriptors: bytes = field(default=b"", repr=False)
    message: str = ""
    #: The address of a schema registry. Bodies then begin with Confluent's header: a zero byte and the schema's id,
    #: with Protobuf followed by the place of the message in the schema.
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
        descriptors: bytes = b"",
        message: str = "",
    ) -> "BodyFormat":
        """Return a checked format. `schema` is DDL, a schema of pyarrow, Avro's JSON, or a generated class of Protobuf;
        `descriptors` and `message` are a descriptor set and the full name of a message in it. Raises `ConfigError`."""
        if name not in FORMATS:
            raise ConfigError(f"body format {name!r}: use {', '.join(FORMATS)}")
        if mode.upper() not in MODES:
            raise ConfigError(f"mode {mode!r}: use {', '.join(MODES)}")
        if name == "csv" and len(separator) != 1:
            raise ConfigError(f"separator {separator!r}: use one character")
        if name == "raw" and (schema is not None or registry):
            raise ConfigError(
                "a schema of bodies needs a format", hint="set the body format to json, csv, avro or protobuf"
            )
        if name == "csv" and registry:
            raise ConfigError("a schema registry has no schemas of CSV")
        if name != "protobuf" and (descriptors or message):
            raise ConfigError(f"bodies as {name} have no descriptors", hint="set the body format to protobuf")
        avro = ""
        if name == "protobuf":
            descriptors, message, schema = _message(descriptors, message, schema, registry)
        if name == "avro" and isinstance(schema, str) and schema.lstrip()[:1] in ("{", "["):
            avro, schema = schema, None
        made = cls(
            name=name,  # type: ignore[arg-type]
            schema=_as_ddl(schema),
            mode=mode.upper(),  # type: ignore[arg-type]
            separator=separator,
            avro=avro,
            descriptors=descriptors,
            message=message,
            registry=registry or "",
        )
        if descriptors and not made.schema:
            from rmqpy.bodies.protobuf_schema import arrow_type as type_of
            from rmqpy.bodies.protobuf_schema import message_class

            try:
                return made.with_schema(type_of(message_class(descriptors, message).DESCRIPTOR))
            except ConfigError:
                # A reader that names the fields can read a message that contains itself.
                return made
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
            raise self.without_schema("give one, or have it sampled")
        return parse_schema(self.schema)

    def without_schema(self, hint: str) -> ConfigError:
        """Return the error of a format that needs a schema and has none."""
        if self.descriptors:
            from rmqpy.bodies.protobuf_schema import arrow_type, message_class

            try:
                arrow_type(message_class(self.descriptors, self.message).DESCRIPTOR)
            except ConfigError as error:
                return error
        return ConfigError(f"bodies as {self.name} need a schema", hint=hint)

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
            case "protobuf":
                from rmqpy.bodies.protobuf import ProtobufDecoder

                return ProtobufDecoder(
                    kind, descriptors=self.descriptors, message=self.message, registry=self.registry
                )
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


def _message(descriptors: bytes, message: str, schema: Any, registry: str | None) -> tuple[bytes, str, Any]:
    """Return the descriptor set, the name of the message, and the schema of the columns if it is another."""
    from rmqpy.bodies.protobuf_schema import descriptors_of, message_class, only_message, protobuf

    protobuf()
    if (given := descriptors_of(schema)) is not None:
        if descriptors:
            raise ConfigError("a class and a descriptor file are two descriptors", hint="give one of them")
        descriptors, message = given[0], message or given[1]
        schema = None
    if descriptors:
        message = message or only_message(descriptors)
        message_class(descriptors, message)
    elif message:
        raise ConfigError("a message needs its descriptor", hint="give a descriptor file")
    elif not registry:
        raise ConfigError(
            "Protobuf bodies need the descriptor of their message",
            hint="give a descriptor file, written by protoc --include_imports --descriptor_set_out, "
            "a generated class, or a schema registry",
        )
    return descriptors, message, schema


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
