"""`JsonCodec`: plain values and dataclasses as JSON, with the types of annotations checked. Any thread.

A converter for a type is built once, from its annotations, and raises `ValueError` with the place of a wrong value.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Mapping, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from types import NoneType
from typing import Any, Final
from uuid import UUID

from rmqpy.client.codecs.codec import Codec
from rmqpy.client.codecs.converters import Convert, Converters, expect, parsed, simple


class JsonCodec(Codec):
    """JSON. Values are dataclasses, typed dictionaries, enumerations, dates, times, `UUID`, `Decimal`, `bytes` (as
    Base64), and all that `json` knows, in lists, sets, tuples and dictionaries.

    Decoding checks the types of annotations. Unknown members are ignored, so producers can add some; a missing one
    takes its default.

    >>> JsonCodec().encode({"id": 7})
    b'{"id":7}'
    >>> JsonCodec().decode(b"[1, 2]", list[int])
    [1, 2]
    """

    def encode(self, value: Any) -> bytes:
        """As `Codec.encode`."""
        text = json.dumps(value, default=_plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()

    def decoder(self, kind: Any) -> Callable[[bytes], Any]:
        """As `Codec.decoder`."""
        return partial(_decode, Converters("JsonCodec", _SIMPLE).of(kind))


def _decode(convert: Convert, body: bytes) -> Any:
    try:
        value = json.loads(body)
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"the body is not valid JSON: {error}") from None
    return convert(value, "")


def _plain(value: Any) -> Any:
    """Return a value that `json` knows for another value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Set):
        return list(value)
    raise TypeError(f"a {type(value).__name__} cannot be JSON: {value!r:.80}")


def _float(value: Any, at: str) -> float:
    return float(expect(value, (int, float), "a number", at))


def _text(parse: Callable[[str], Any], kind: type) -> Convert:
    return lambda value, at: parsed(parse, kind, expect(value, str, "text", at), at)


def _decimal(value: Any, at: str) -> Decimal:
    number: Decimal = parsed(Decimal, Decimal, str(expect(value, (str, int, float), "a number", at)), at)
    return number


_SIMPLE: Final[Mapping[Any, Convert]] = {
    bool: simple(bool, "true or false"),
    int: simple(int, "an integer"),
    float: _float,
    str: simple(str, "text"),
    NoneType: simple(NoneType, "null"),
    datetime: _text(datetime.fromisoformat, datetime),
    date: _text(date.fromisoformat, date),
    time: _text(time.fromisoformat, time),
    timedelta: lambda value, at: timedelta(seconds=_float(value, at)),
    UUID: _text(UUID, UUID),
    Decimal: _decimal,
    bytes: _text(partial(base64.b64decode, validate=True), bytes),
}
