"""Conversion between declared Python types and wire values.

Owns the rule of every type in declarations: `str`, `int`, `float`, `bool`, enumerations (by name), optional values,
lists, tuples, sets, maps (with text, integer or record keys), records, and `object` for JSON passed through. The
rules of a class are computed at its first use.

Reading accepts what Java accepts; writing is exact: a bool is `true`, an enum its name, `None` is omitted.

Pure; any thread: concurrent first uses compute equal rules.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

from rmqpy.errors import DecodeError
from rmqpy.protocol import fastjson
from rmqpy.protocol.codes import ResponseCode

#: The metadata keys of a dataclass field: its wire name, and that it has none.
WIRE_NAME: Final = "rmqpy.wire"
OFF_WIRE: Final = "rmqpy.off_wire"


class TypeMismatch(Exception):
    """A value that does not fit its type; containers add its path as it propagates."""

    def __init__(self, wanted: str, value: object) -> None:
        super().__init__(wanted)
        self._wanted = wanted
        self._value = value
        self._path: list[str] = []

    def inside(self, place: str) -> Self:
        """The same, one container further out."""
        self._path.insert(0, place)
        return self

    def error(self) -> DecodeError:
        """The error for the sender: a missing member, in Java's words, or a value and its expected type."""
        path = "".join(self._path).removeprefix(".")
        if self._value is _MISSING:
            return DecodeError(f"the custom field <{path}> is null", code=ResponseCode.SYSTEM_ERROR)
        shown = repr(self._value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return DecodeError(f"{path} must be {self._wanted}, not {shown}", code=ResponseCode.INVALID_PARAMETER)


_MISSING: Final = object()


class Rule(NamedTuple):
    """Reader and writer of one type. `read` raises `TypeMismatch`."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    is_optional: bool = False
    is_text: bool = False


class WireField(NamedTuple):
    """One field of a declared class."""

    attribute: str
    wire: str
    rule: Rule
    default: Callable[[], Any] | None


@cache
def wire_fields(kind: type, *, but: str = "") -> tuple[WireField, ...]:
    """The transmitted fields of a declared class, ordered by wire name as in Java."""
    hints = get_type_hints(kind)
    found = [
        WireField(
            one.name, one.metadata.get(WIRE_NAME, camel_case(one.name)), rule(hints[one.name]), _default(one)
        )
        for one in fields(kind)
        if OFF_WIRE not in one.metadata and one.name != but
    ]
    return tuple(sorted(found, key=lambda found: found.wire))


def camel_case(name: str) -> str:
    """`queue_id` is `queueId` on the wire."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def read_fields(among: tuple[WireField, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments by attribute. Names are matched exactly, else in any case."""
    found: dict[str, Any] = {}
    folded: dict[str, Any] | None = None
    for attribute, wire, (read, _, is_optional, is_text), default in among:
        value = values.get(wire)
        if value is None and wire not in values and len(values) > len(found):
            if folded is None:
                folded = {name.lower(): value for name, value in values.items()}
            value = folded.get(wire.lower())
        if value is None or (value == "" and not is_text):
            if default is not None:
                continue
            if not is_optional:
                raise TypeMismatch("there", _MISSING).inside(f".{wire}")
        try:
            found[attribute] = read(value)
        except TypeMismatch as mismatch:
            raise mismatch.inside(f".{wire}") from None
    return found


def rule(annotation: Any) -> Rule:
    """Return the rule of a type. Raises `TypeError` for a type that declarations cannot use."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return _optional(annotation, arguments)
    if origin in (list, tuple, set, frozenset):
        return _sequence(origin, rule(arguments[0]))
    if origin in (dict, Mapping):
        return _map(arguments[0], rule(arguments[1]))
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enumeration(annotation)
    if isinstance(annotation, type) and is_dataclass(annotation):
        return _record(annotation)
    raise TypeError(f"a declaration cannot use {annotation!r}")


# ---- scalars -------------------------------------------------------------------------------------------

_INTEGER: Final = re.compile(r"\s*[+-]?\d{1,19}\s*", re.ASCII)


def _read_text(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
    raise TypeMismatch("text", value)


def _read_integer(value: Any) -> int:
    match value:
        case int():
            number = int(value)
        case str() if _INTEGER.fullmatch(value):
            number = int(value)
        case float() if value.is_integer():
            number = int(value)
        case _:
            raise TypeMismatch("an integer", value)
    if not (-(1 << 63) <= number < 1 << 63):
        raise TypeMismatch("an integer of 64 bits", value)
    return number


def _read_float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeMismatch("a number", value) from None


def _read_bool(value: Any) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}.get(str(value).strip().lower())
    if known is None:
        raise TypeMismatch("true or false", value)
    return known


_SCALARS: Final[dict[Any, Rule]] = {
    str: Rule(_read_text, str, is_text=True),
    int: Rule(_read_integer, int),
    float: Rule(_read_float, float),
    bool: Rule(_read_bool, bool),
    object: Rule(lambda value: value, lambda value: value, is_optional=True),
}


def _enumeration(kind: type[Enum]) -> Rule:
    """By name in any case, or by ordinal, as in fastjson."""
    by_name = {member.name.lower(): member for member in kind}
    by_ordinal = list(kind)

    def read(value: Any) -> Enum:
        found = by_name.get(str(value).lower())
        if found is None and str(value).isdecimal() and int(value) < len(by_ordinal):
            found = by_ordinal[int(value)]
        if found is None:
            raise TypeMismatch(f"one of {', '.join(member.name for member in kind)}", value)
        return found

    return Rule(read, lambda member: member.name)


# ---- compositions --------------------------------------------------------------------------------------


def _optional(annotation: Any, arguments: tuple[Any, ...]) -> Rule:
    inner = [argument for argument in arguments if argument is not NoneType]
    if len(inner) != 1 or len(inner) == len(arguments):
        raise TypeError(f"a declaration cannot use {annotation!r}: the only union is `X | None`")
    read, write, _, is_text = rule(inner[0])
    return Rule(
        lambda value: None if value is None else read(value),
        lambda value: None if value is None else write(value),
        is_optional=True,
        is_text=is_text,
    )


def _sequence(kind: Callable[[list[Any]], Any], element: Rule) -> Rule:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise TypeMismatch("a list", value)
        found: list[Any] = []
        try:
            for one in value:
                found.append(element.read(one))
        except TypeMismatch as mismatch:
            raise mismatch.inside(f"[{len(found)}]") from None
        return kind(found)

    return Rule(read, lambda value: [element.write(one) for one in value])


def _map(key_type: Any, member: Rule) -> Rule:
    read_key, write_key = _key(key_type)

    def read(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise TypeMismatch("an object", value)
        found: dict[Any, Any] = {}
        key: Any = None
        try:
            for key, one in value.items():
                found[read_key(key)] = member.read(one)
        except TypeMismatch as mismatch:
            raise mismatch.inside(f".{key}") from None
        return found

    return Rule(read, lambda value: {write_key(key): member.write(one) for key, one in value.items()})


def _key(kind: Any) -> tuple[Callable[[str], Any], Callable[[Any], Any]]:
    if kind is str:
        return str, str
    if kind is int:
        return _read_integer, int
    inner = rule(kind)
    return (
        lambda key: inner.read(fastjson.loads(key)),
        lambda key: fastjson.ObjectKey(fastjson.dumps(inner.write(key))),
    )


def _record(kind: type) -> Rule:
    # `wire_fields` is called inside, so that a record may contain itself.
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeMismatch("an object", value)
        return kind(**read_fields(wire_fields(kind), value))

    return Rule(read, lambda value: write_fields(wire_fields(kind), value))


def write_fields(among: tuple[WireField, ...], holder: object) -> dict[str, Any]:
    """Wire names and values of an instance, without `None`."""
    written: dict[str, Any] = {}
    for field in among:
        value = getattr(holder, field.attribute)
        if value is not None:
            written[field.wire] = field.rule.write(value)
    return written


def _default(one: Field[Any]) -> Callable[[], Any] | None:
    if one.default_factory is not MISSING:
        return one.default_factory
    if one.default is not MISSING:
        return lambda: one.default
    return None
