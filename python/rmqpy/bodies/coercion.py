"""Values of JSON and CSV as values of a declared type, one by one: the path for bodies that whole columns refuse.

A function raises `ValueError` for a value that its type cannot hold.
"""

import json
import math
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies.arrow import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

Coerce = Callable[[Any], Any]

_INT_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_WORDS: Final = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
    "INF": math.inf,
    "-INF": -math.inf,
}


def of_json(kind: "pa.DataType") -> Coerce:
    """Return the conversion of a decoded JSON value to a value of an Arrow type."""
    types = pyarrow("typed bodies").types
    if types.is_struct(kind):
        return _struct([(field.name, of_json(field.type)) for field in kind])
    if types.is_map(kind):
        return _map(of_json(kind.item_type))
    if types.is_list(kind):
        return _list(of_json(kind.value_type))
    if types.is_string(kind):
        return _nullable(lambda value: value if isinstance(value, str) else _compact(value))
    if types.is_boolean(kind):
        return _nullable(_boolean)
    if types.is_integer(kind):
        return _nullable(_integer(kind))
    if types.is_floating(kind):
        return _nullable(_floating)
    return _nullable(_scalar(kind))


def of_text(kind: "pa.DataType") -> Coerce:
    """Return the conversion of a CSV field to a value of an Arrow type. An empty field is null."""
    types = pyarrow("typed bodies").types
    if types.is_string(kind):
        convert: Coerce = str
    elif types.is_boolean(kind):
        convert = _boolean_text
    elif types.is_integer(kind):
        integer = _integer(kind)
        convert = lambda text: integer(int(text))  # noqa: E731
    elif types.is_floating(kind):
        convert = lambda text: _WORDS[text] if text in _WORDS else float(text)  # noqa: E731
    elif types.is_nested(kind):
        raise ValueError(f"a CSV field cannot be {kind}")
    else:
        convert = _scalar(kind)
    return lambda text: None if text == "" else convert(text)


def _nullable(convert: Coerce) -> Coerce:
    return lambda value: None if value is None else convert(value)


def _struct(fields: list[tuple[str, Coerce]]) -> Coerce:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, not {_shown(value)}")
        return {name: coerce(value.get(name)) for name, coerce in fields}

    return convert


def _map(item: Coerce) -> Coerce:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, not {_shown(value)}")
        return [(key, item(each)) for key, each in value.items()]

    return convert


def _list(element: Coerce) -> Coerce:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise ValueError(f"expected an array, not {_shown(value)}")
        return [element(each) for each in value]

    return convert


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"expected true or false, not {_shown(value)}")


def _boolean_text(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError(f"expected true or false, not {_shown(text)}")


def _integer(kind: "pa.DataType") -> Coerce:
    bound = 1 << (_INT_BITS[str(kind)] - 1)

    def convert(value: Any) -> int:
        if type(value) is int and -bound <= value < bound:
            return value
        raise ValueError(f"expected a number of type {kind}, not {_shown(value)}")

    return convert


def _floating(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    raise ValueError(f"expected a number, not {_shown(value)}")


def _scalar(kind: "pa.DataType") -> Coerce:
    types = pyarrow("typed bodies").types
    if types.is_timestamp(kind):
        return lambda value: _timestamp(value, has_zone=kind.tz is not None)
    if types.is_date(kind):
        return lambda value: date.fromisoformat(_text(value))
    if types.is_decimal(kind):
        return lambda value: _decimal(value, kind)
    if types.is_binary(kind):
        return lambda value: b64decode(_text(value), validate=True)
    raise ValueError(f"a field of a body cannot be {kind}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"expected text, not {_shown(value)}")


def _timestamp(value: Any, *, has_zone: bool) -> datetime:
    moment = datetime.fromisoformat(_text(value).strip())
    if not has_zone:
        return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _decimal(value: Any, kind: "pa.DataType") -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError(f"expected a number, not {_shown(value)}")
    try:
        exact = Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale))
    except InvalidOperation:
        raise ValueError(f"{_shown(value)} does not fit {kind}") from None
    if not exact.is_finite() or len(exact.as_tuple().digits) > kind.precision:
        raise ValueError(f"{_shown(value)} does not fit {kind}")
    return exact


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
