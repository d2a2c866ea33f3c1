"""`JsonCodec`: plain values and dataclasses as JSON, with the types of annotations checked. Any thread.

A converter for a type is built once, from its annotations, and raises `ValueError` with the place of a wrong value.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

from rmqpy.client.codecs.codec import Codec

#: Converts a value as `json` returns it; the text is its place, for errors.
Convert = Callable[[Any, str], Any]


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
        return partial(_decode, _Converters().of(kind))


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


class _Converters:
    """The converters of one type and of all types in it."""

    def __init__(self) -> None:
        #: Types whose converters are being built, because a type may contain itself.
        self._known: dict[Any, list[Convert]] = {}

    def of(self, kind: Any) -> Convert:
        """Return the converter of a type. Raises `TypeError` for an unsupported type."""
        if kind is Any or kind is object or isinstance(kind, TypeVar):
            return lambda value, at: value
        if kind is None:
            kind = NoneType
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self.of(arguments[0])
        if origin in (Union, UnionType):
            return self._union(arguments)
        if origin is Literal:
            return partial(_literal, arguments)
        return self._class(kind, origin or kind, arguments)

    def _class(self, kind: Any, origin: Any, arguments: tuple[Any, ...]) -> Convert:
        if not isinstance(origin, type):
            raise TypeError(f"JsonCodec cannot decode {kind!r}")
        if (simple := _SIMPLE.get(origin)) is not None:
            return simple
        if issubclass(origin, Enum):
            return partial(_parsed, origin, origin)
        if dataclasses.is_dataclass(origin) or is_typeddict(origin):
            return self._members(origin)
        if issubclass(origin, tuple) and not hasattr(origin, "_fields"):
            if len(arguments) == 2 and arguments[1] is Ellipsis:
                return partial(_several, tuple, self.of(arguments[0]))
            return partial(_tuple, [self.of(each) for each in arguments]) if arguments else _any_tuple
        for base, made in _COLLECTIONS:
            if origin is base:
                return partial(_several, made, self.of(arguments[0] if arguments else Any))
        if origin in (dict, Mapping):
            key, value = arguments or (str, Any)
            if key not in (str, Any):
                raise TypeError(f"JsonCodec cannot decode {kind!r}: keys of JSON objects are text")
            return partial(_dictionary, self.of(value))
        raise TypeError(
            f"JsonCodec cannot decode {kind!r}: use a dataclass, or the codec of its library, such as PydanticCodec"
        )

    def _union(self, kinds: Sequence[Any]) -> Convert:
        converts = [self.of(each) for each in kinds]

        def convert(value: Any, at: str) -> Any:
            faults = []
            for each in converts:
                try:
                    return each(value, at)
                except ValueError as fault:
                    faults.append(str(fault))
            raise ValueError("; or ".join(faults))

        return convert

    def _members(self, kind: Any) -> Convert:
        if (known := self._known.get(kind)) is not None:
            return lambda value, at: known[0](value, at)
        building = self._known[kind] = []
        try:
            hints = get_type_hints(kind, include_extras=True)
        except NameError as error:
            raise TypeError(f"JsonCodec cannot read the annotations of {kind.__name__}: {error}") from None
        if dataclasses.is_dataclass(kind):
            fields = [each for each in dataclasses.fields(kind) if each.init]
            hints = {each.name: hints[each.name] for each in fields}
            required = {
                each.name
                for each in fields
                if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
            }
        else:
            # With annotations as text, Python 3.11 counts members that are `NotRequired` among the required ones.
            required = {
                name
                for name, hint in hints.items()
                if get_origin(hint) is Required
                or (name in kind.__required_keys__ and get_origin(hint) is not NotRequired)
            }
            hints = {name: _bare(hint) for name, hint in hints.items()}
        converts = {name: self.of(hint) for name, hint in hints.items()}

        def convert(value: Any, at: str) -> Any:
            members = _expect(value, dict, "an object", at)
            if missing := required - members.keys():
                raise ValueError(f"{at or 'the body'} lacks {', '.join(sorted(missing))}")
            given = {
                name: each(members[name], f"{at}.{name}" if at else name)
                for name, each in converts.items()
                if name in members
            }
            return kind(**given)

        building.append(convert)
        return convert


def _bare(hint: Any) -> Any:
    """Return the type of a typed dictionary's member, without `Required` or `NotRequired`."""
    return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


def _expect(value: Any, kind: Any, name: str, at: str) -> Any:
    # `True` is an int of Python, not a number of JSON.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{at or 'the body'} must be {name}, not {json.dumps(value):.80}")
    return value


def _simple(kind: Any, name: str) -> Convert:
    return lambda value, at: _expect(value, kind, name, at)


def _float(value: Any, at: str) -> float:
    return float(_expect(value, (int, float), "a number", at))


def _parsed(parse: Callable[[Any], Any], kind: type, value: Any, at: str) -> Any:
    try:
        return parse(value)
    except (ValueError, TypeError, InvalidOperation) as error:
        raise ValueError(f"{at or 'the body'} is not a {kind.__name__}: {error}") from None


def _text(parse: Callable[[str], Any], kind: type) -> Convert:
    return lambda value, at: _parsed(parse, kind, _expect(value, str, "text", at), at)


def _decimal(value: Any, at: str) -> Decimal:
    number: Decimal = _parsed(Decimal, Decimal, str(_expect(value, (str, int, float), "a number", at)), at)
    return number


def _literal(allowed: tuple[Any, ...], value: Any, at: str) -> Any:
    if not any(value == each and type(value) is type(each) for each in allowed):
        raise ValueError(f"{at or 'the body'} must be one of {allowed}, not {value!r:.80}")
    return value


def _several(made: Callable[[Any], Any], convert: Convert, value: Any, at: str) -> Any:
    items = _expect(value, list, "a list", at)
    return made(convert(item, f"{at}[{index}]") for index, item in enumerate(items))


def _tuple(converts: Sequence[Convert], value: Any, at: str) -> tuple[Any, ...]:
    items = _expect(value, list, "a list", at)
    if len(items) != len(converts):
        raise ValueError(f"{at or 'the body'} must have {len(converts)} items, not {len(items)}")
    return tuple(
        convert(item, f"{at}[{index}]")
        for index, (convert, item) in enumerate(zip(converts, items, strict=True))
    )


def _any_tuple(value: Any, at: str) -> tuple[Any, ...]:
    return tuple(_expect(value, list, "a list", at))


def _dictionary(convert: Convert, value: Any, at: str) -> dict[str, Any]:
    members = _expect(value, dict, "an object", at)
    return {name: convert(item, f"{at}.{name}" if at else name) for name, item in members.items()}


_SIMPLE: Final[Mapping[Any, Convert]] = {
    bool: _simple(bool, "true or false"),
    int: _simple(int, "an integer"),
    float: _float,
    str: _simple(str, "text"),
    NoneType: _simple(NoneType, "null"),
    datetime: _text(datetime.fromisoformat, datetime),
    date: _text(date.fromisoformat, date),
    time: _text(time.fromisoformat, time),
    timedelta: lambda value, at: timedelta(seconds=_float(value, at)),
    UUID: _text(UUID, UUID),
    Decimal: _decimal,
    bytes: _text(partial(base64.b64decode, validate=True), bytes),
}
_COLLECTIONS: Final[Sequence[tuple[Any, Callable[[Any], Any]]]] = (
    (list, list),
    (Sequence, list),
    (set, set),
    (Set, frozenset),
    (frozenset, frozenset),
)
