"""`AvroCodec`: values of an Avro schema, by fastavro.

A body is one datum without a header or a container, as `rmqpy.read_topic` reads it. A schema is refused if a small body
could exhaust the memory or the stack of its reader.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import partial
from io import BytesIO
from types import NoneType
from typing import Any, Final
from uuid import UUID

import fastavro
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import validate

from rmqpy.client.codecs.codec import Codec
from rmqpy.client.codecs.converters import Convert, Converters, expect, required_fields, simple


class AvroCodec(Codec):
    """Avro's binary format with one schema, that of all producers and consumers of the topic.

    ::

        orders = producer.typed("orders", Order, codec=AvroCodec(Path("order.avsc").read_text()))

    Values of a record are dictionaries, typed dictionaries or dataclasses with its fields. Annotations are checked as
    by `JsonCodec`. Avro has its own types for dates, times, `UUID`, `Decimal` and `bytes`.
    """

    def __init__(self, schema: str | Mapping[str, Any] | Sequence[Any]) -> None:
        """`schema` is the text of a schema, or the same as dictionaries and lists. Raises `ValueError` for an invalid
        schema, for recursive types, and for arrays of items without bytes."""
        try:
            # The name of a primitive type is not JSON.
            form: Any = schema
            if isinstance(schema, str) and schema.lstrip().startswith(("{", "[", '"')):
                form = json.loads(schema)
            self._schema: Any = fastavro.parse_schema(form)
        except (SchemaParseException, UnknownType, TypeError, ValueError) as error:
            raise ValueError(f"not an Avro schema: {error}") from None
        _check(self._schema, {})

    def encode(self, value: Any) -> bytes:
        """As `Codec.encode`. The value is validated, because Avro would truncate 1.5 to the integer 1."""
        datum = _datum(value)
        body = BytesIO()
        try:
            validate(datum, self._schema)
            fastavro.schemaless_writer(body, self._schema, datum, strict_allow_default=True)
        except TypeError:
            raise
        except Exception as error:
            raise ValueError(f"the value is not of the schema: {_reason(error)}") from None
        return body.getvalue()

    def decoder(self, kind: Any) -> Callable[[bytes], Any]:
        """As `Codec.decoder`."""
        convert = Converters("AvroCodec", _ATOMS).of(kind)
        if dataclasses.is_dataclass(kind):
            fields = self._schema.get("fields", ()) if isinstance(self._schema, dict) else ()
            if missing := required_fields(kind) - {each["name"] for each in fields}:
                raise TypeError(
                    f"AvroCodec cannot decode {kind!r}: the schema lacks {', '.join(sorted(missing))}"
                )
        return partial(_decode, self._schema, convert)


def _decode(schema: Any, convert: Convert, body: bytes) -> Any:
    stream = BytesIO(body)
    try:
        value = fastavro.schemaless_reader(stream, schema, None)
    except Exception as error:
        # Of many types, among them EOFError, IndexError and OverflowError.
        raise ValueError(f"the body is not of the schema: {_reason(error)}") from None
    if left := len(body) - stream.tell():
        raise ValueError(f"the body is not of the schema: {left} bytes follow the value")
    return convert(value, "")


def _reason(error: Exception) -> str:
    return str(error) or ("it ends too early" if isinstance(error, EOFError) else type(error).__name__)


def _datum(value: Any) -> Any:
    """Return what fastavro knows for a value. Dictionaries remain as they are, with its notations for unions."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _datum(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, list | tuple | Set):
        return [_datum(each) for each in value]
    return value


def _check(schema: Any, named: dict[str, bool | None]) -> bool:
    """Return whether a value may take no bytes. Raises `ValueError` for a schema that cannot be read safely.

    `named` has the answers for the types defined before, and `None` for those around this one.
    """
    if isinstance(schema, list):
        for each in schema:
            _check(each, named)
        return False
    if isinstance(schema, str):
        is_empty = named.get(schema, schema == "null")
        if is_empty is None:
            raise ValueError(f"the schema of {schema} contains itself: a body could exhaust the stack")
        return is_empty
    match schema["type"]:
        case "record" | "error":
            named[schema["name"]] = None
            parts = [_check(each["type"], named) for each in schema["fields"]]
            named[schema["name"]] = all(parts)
            return all(parts)
        case "array":
            if _check(schema["items"], named):
                raise ValueError(
                    "the schema has an array of items without bytes: a body could exhaust the memory"
                )
            return False
        case "map":
            _check(schema["values"], named)
            return False
        case "fixed":
            is_empty = named[schema["name"]] = schema["size"] == 0
            return bool(is_empty)
        case "enum":
            return False
        case other:
            return _check(other, named)


def _date(value: Any, at: str) -> Any:
    if isinstance(value, datetime):
        raise ValueError(f"{at or 'the body'} must be a date, not {value}")
    return expect(value, date, "a date", at)


_ATOMS: Final[Mapping[Any, Convert]] = {
    bool: simple(bool, "true or false"),
    int: simple(int, "an integer"),
    float: lambda value, at: float(expect(value, (int, float), "a number", at)),
    str: simple(str, "text"),
    bytes: simple(bytes, "bytes"),
    NoneType: simple(NoneType, "null"),
    datetime: simple(datetime, "a datetime"),
    date: _date,
    time: simple(time, "a time"),
    UUID: simple(UUID, "a UUID"),
    Decimal: simple(Decimal, "a decimal number"),
}
