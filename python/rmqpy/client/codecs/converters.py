"""`Converters`: decoded values as values of annotated types, for codecs whose formats have no types of Python.

A converter for a type is built once, from its annotations, and raises `ValueError` with the place of a wrong value.
Pure; any thread.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence, Set
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

#: Converts a decoded value; the text is its place, for errors.
Convert = Callable[[Any, str], Any]


class Converters:
    """The converters of one type and of all types in it."""

    def __init__(self, codec: str, atoms: Mapping[Any, Convert]) -> None:
        """`codec` is the name in errors; `atoms` has the converters of types without parts."""
        self._codec = codec
        self._atoms = atoms
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
            raise TypeError(f"{self._codec} cannot decode {kind!r}")
        if (atom := self._atoms.get(origin)) is not None:
            return atom
        if issubclass(origin, Enum):
            return partial(parsed, origin, origin)
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
                raise TypeError(f"{self._codec} cannot decode {kind!r}: keys must be text")
            return partial(_dictionary, self.of(value))
        raise TypeError(
            f"{self._codec} cannot decode {kind!r}: use a dataclass, or the codec of its library, such as PydanticCodec"
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
            raise TypeError(
                f"{self._codec} cannot read the annotations of {kind.__name__}: {error}"
            ) from None
        if dataclasses.is_dataclass(kind):
            hints = {each.name: hints[each.name] for each in dataclasses.fields(kind) if each.init}
            required = required_fields(kind)
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
            members = expect(value, dict, "an object", at)
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


def required_fields(kind: Any) -> set[str]:
    """Return the names of a dataclass's fields without a default."""
    return {
        each.name
        for each in dataclasses.fields(kind)
        if each.init and each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    }


def _bare(hint: Any) -> Any:
    """Return the type of a typed dictionary's member, without `Required` or `NotRequired`."""
    return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


def expect(value: Any, kind: Any, name: str, at: str) -> Any:
    """Return a value of this type; `name` describes it."""
    # `True` is an int of Python, not a number.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{at or 'the body'} must be {name}, not {json.dumps(value, default=str):.80}")
    return value


def simple(kind: Any, name: str) -> Convert:
    """Return the converter that only checks the type."""
    return lambda value, at: expect(value, kind, name, at)


def parsed(parse: Callable[[Any], Any], kind: type, value: Any, at: str) -> Any:
    """Return what `parse` makes of a value."""
    try:
        return parse(value)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"{at or 'the body'} is not a {kind.__name__}: {error}") from None


def _literal(allowed: tuple[Any, ...], value: Any, at: str) -> Any:
    if not any(value == each and type(value) is type(each) for each in allowed):
        raise ValueError(f"{at or 'the body'} must be one of {allowed}, not {value!r:.80}")
    return value


def _several(made: Callable[[Any], Any], convert: Convert, value: Any, at: str) -> Any:
    items = expect(value, list, "a list", at)
    return made(convert(item, f"{at}[{index}]") for index, item in enumerate(items))


def _tuple(converts: Sequence[Convert], value: Any, at: str) -> tuple[Any, ...]:
    items = expect(value, list, "a list", at)
    if len(items) != len(converts):
        raise ValueError(f"{at or 'the body'} must have {len(converts)} items, not {len(items)}")
    return tuple(
        convert(item, f"{at}[{index}]")
        for index, (convert, item) in enumerate(zip(converts, items, strict=True))
    )


def _any_tuple(value: Any, at: str) -> tuple[Any, ...]:
    return tuple(expect(value, list, "a list", at))


def _dictionary(convert: Convert, value: Any, at: str) -> dict[str, Any]:
    members = expect(value, dict, "an object", at)
    return {name: convert(item, f"{at}.{name}" if at else name) for name, item in members.items()}


_COLLECTIONS: Final[Sequence[tuple[Any, Callable[[Any], Any]]]] = (
    (list, list),
    (Sequence, list),
    (set, set),
    (Set, frozenset),
    (frozenset, frozenset),
)
