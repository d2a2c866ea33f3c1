"""Values of the API: to and from JSON, from query text, and described for OpenAPI.

Python's types are the only declaration. Pure.
"""

import dataclasses
import reprlib
import types
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from rmqpy.errors import ConfigError

Json = dict[str, Any]
Schemas = dict[str, Json]

_PLAIN: Final[Mapping[Any, Json]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    Any: {},
    object: {},
}
_NOUNS: Final[Mapping[type, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
#: The most characters of a value or name that an error quotes.
_QUOTED_MAX: Final = 80
_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}


_QUOTES: Final = reprlib.Repr()
_QUOTES.maxstring = _QUOTES.maxother = _QUOTES.maxlong = _QUOTED_MAX
_QUOTES.maxlevel = 2


class Between(NamedTuple):
    """Bounds of a number: `Annotated[int, Between(1, 100)]`."""

    low: int
    high: int


class Chars(NamedTuple):
    """Bound of a text's length: `Annotated[str, Chars(255)]`."""

    most: int


def quoted(value: object) -> str:
    """A value for an error, shortened so that a response is never as large as the request."""
    return _QUOTES.repr(value)


def _cut(name: str) -> str:
    return name if len(name) <= _QUOTED_MAX else f"{name[: _QUOTED_MAX - 1]}…"


def fields_of(kind: type) -> dict[str, Any]:
    """Names and types of an object's members: fields, then properties."""
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {each.name: hints[each.name] for each in dataclasses.fields(kind)}
    named: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    hints = get_type_hints(kind, include_extras=True)
    shown = {name: hints[name] for name in named}
    for name, member in vars(kind).items():
        if isinstance(member, property):
            shown[name] = get_type_hints(member.fget)["return"]
    return shown


def to_json(value: object) -> Any:
    """A value for JSON; times are ISO 8601 in UTC."""
    match value:
        case None | bool() | str():
            return value
        case Enum():
            return value.name if isinstance(value, int) else value.value
        case int() | float():
            return value
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case Mapping():
            return {str(name): to_json(each) for name, each in value.items()}
    if is_record(type(value)):
        return {name: to_json(getattr(value, name)) for name in fields_of(type(value))}
    if isinstance(value, Sequence | set | frozenset):
        return [to_json(each) for each in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def is_record(kind: Any) -> bool:
    """Whether it is a class of named fields."""
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"))


def schema_of(kind: Any, schemas: Schemas) -> Json:
    """The JSON schema of a type; schemas of objects are collected in `schemas`, by name."""
    if kind in (None, type(None)):
        return {"type": "null"}
    if found := _PLAIN.get(kind) if kind.__hash__ else None:
        return dict(found)
    if kind in (Any, object):
        return {}
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return schema_of(inner[0], schemas) | _bounds(inner[1:])
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, schemas) for each in inner]}
    if is_record(kind):
        if kind.__name__ not in schemas:
            schemas[kind.__name__] = {}
            shown = fields_of(kind)
            schemas[kind.__name__] |= {
                "type": "object",
                "description": (kind.__doc__ or "").partition("\n")[0],
                "properties": {name: schema_of(each, schemas) for name, each in shown.items()},
                "required": list(shown),
            }
        return {"$ref": f"#/components/schemas/{kind.__name__}"}
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {"type": "object", "additionalProperties": schema_of(inner[1], schemas)}
    if origin is tuple and not (len(inner) == 2 and inner[1] is ...):
        return {"type": "array", "prefixItems": [schema_of(each, schemas) for each in inner]}
    if isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset):
        return {"type": "array", "items": schema_of(inner[0], schemas)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [to_json(each) for each in kind]}
    if isinstance(kind, type) and issubclass(kind, str | int):
        return schema_of(str if issubclass(kind, str) else int, schemas)
    raise TypeError(f"{kind} has no schema")


def _bounds(given: Sequence[object]) -> Json:
    for each in given:
        if isinstance(each, Between):
            return {"minimum": each.low, "maximum": each.high}
        if isinstance(each, Chars):
            return {"maxLength": each.most}
    return {}


def from_text(kind: Any, text: str, name: str) -> Any:
    """Parse a value of a query or path. Raises `ConfigError` naming it."""
    bare, bounds = _bare(kind)
    if bare is bool:
        if text.lower() not in _TRUTHS:
            raise ConfigError(f"{name} must be true or false, not {quoted(text)}")
        return _TRUTHS[text.lower()]
    if bare in (int, float):
        try:
            return _checked(bare(text), bounds, name)
        except ValueError as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{name} must be {_NOUNS[bare]}, not {quoted(text)}") from None
    return from_json(kind, text, name)


def from_json(kind: Any, value: Any, name: str) -> Any:
    """Parse a value of a body. Raises `ConfigError` naming it."""
    bare, bounds = _bare(kind)
    origin, inner = get_origin(bare), get_args(bare)
    if value is None and bare is not kind and type(None) in _alternatives(kind):
        return None
    if origin is Literal:
        if value not in inner:
            raise ConfigError(f"{name} must be one of {', '.join(map(str, inner))}, not {quoted(value)}")
        return value
    if bare is datetime:
        return _moment(value, name)
    if bare in _NOUNS:
        wanted = (int, float) if bare is float else bare
        if not isinstance(value, wanted) or (isinstance(value, bool) and bare is not bool):
            raise ConfigError(f"{name} must be {_NOUNS[bare]}, not {quoted(value)}")
        return _checked(value, bounds, name)
    if origin is list:
        if not isinstance(value, list):
            raise ConfigError(f"{name} must be a list")
        _check_size(len(value), bounds, name, "entries")
        return [from_json(inner[0], each, f"{name}[{at}]") for at, each in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"{name} must be an object")
        return {
            str(key): from_json(inner[1], each, f"{name}.{_cut(str(key))}") for key, each in value.items()
        }
    if is_record(bare):
        if not isinstance(value, dict):
            raise ConfigError(f"{name} must be an object")
        return bare(**record_arguments(fields_of(bare), bare._field_defaults, value, f"{name}."))
    raise TypeError(f"{kind} cannot be read")


def record_arguments(
    hints: Mapping[str, Any], defaults: Mapping[str, Any], given: Mapping[str, Any], prefix: str = ""
) -> dict[str, Any]:
    """The checked fields of an object; those with a default may be missing."""
    for name in given:
        if name not in hints:
            raise ConfigError(
                f"unknown field {prefix}{_cut(name)}; known fields: {', '.join(hints) or 'none'}"
            )
    missing = [name for name in hints if name not in given and name not in defaults]
    if missing:
        raise ConfigError(f"{prefix}{missing[0]} is missing")
    return {name: from_json(hints[name], each, f"{prefix}{name}") for name, each in given.items()}


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else ()


def _bare(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without `None` and bounds, and the bounds."""
    given = [each for each in _alternatives(kind) if each is not type(None)]
    bare = given[0] if len(given) == 1 else kind
    if get_origin(bare) is Annotated:
        return get_args(bare)[0], get_args(bare)[1:]
    return bare, ()


def _checked(value: Any, bounds: Sequence[object], name: str) -> Any:
    for each in bounds:
        if isinstance(each, Between) and not each.low <= value <= each.high:
            raise ConfigError(f"{name} must be from {each.low} to {each.high}, not {quoted(value)}")
        if isinstance(each, Chars):
            _check_size(len(value), bounds, name, "characters")
    return value


def _check_size(size: int, bounds: Sequence[object], name: str, unit: str) -> None:
    for each in bounds:
        if isinstance(each, Chars) and size > each.most:
            raise ConfigError(f"{name} has {size} {unit}, at most {each.most} are allowed")


def _moment(value: Any, name: str) -> datetime:
    """Parse a time: ISO 8601, in UTC without a zone, or ms since the epoch."""
    try:
        if isinstance(value, int) or (isinstance(value, str) and value.isascii() and value.isdigit()):
            return datetime.fromtimestamp(int(value) / 1_000, UTC)
        moment = datetime.fromisoformat(value)
    except (ValueError, TypeError, OverflowError, OSError):
        raise ConfigError(f"{name} must be a time like 2026-01-31T12:00Z, not {quoted(value)}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
