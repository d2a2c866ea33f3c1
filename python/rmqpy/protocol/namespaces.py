"""Namespaces: translation of declared messages between users' names and full names.

Owns the traversal of a declaration to everything marked `Resource`. A client translates outgoing requests and incoming
replies, so all other code knows one kind of names; without a namespace this code does not run.
Lists and tables in replies are filtered to the namespace: on a shared cluster two topics would otherwise appear as
`orders`.

Pure; any thread. The traversal of a class is computed at its first use.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from rmqpy._native import Namespace
from rmqpy.protocol.declare import RESOURCE

T = TypeVar("T")


class _Names(NamedTuple):
    """Translation of a name, and whether a table keeps it."""

    other: Callable[[str], str]
    is_kept: Callable[[str], bool]


#: The translation of a value.
_Rule = Callable[[_Names, Any], Any]


def outward(namespace: Namespace, message: T) -> T:
    """A declared message with full names."""
    return _translated(_Names(namespace.wrap, lambda name: True), message)


def inward(namespace: Namespace, message: T) -> T:
    """A declared message with users' names."""
    return _translated(_Names(namespace.unwrap, namespace.shows), message)


def _translated(names: _Names, message: T) -> T:
    return _record(names, message) if is_dataclass(message) else message


def _record(names: _Names, holder: Any) -> Any:
    kind: type = type(holder)
    changes = {}
    for attribute, rule in _rules(kind):
        value = getattr(holder, attribute)
        if value is not None:
            changes[attribute] = rule(names, value)
    return replace(holder, **changes) if changes else holder


@cache
def _rules(kind: type) -> tuple[tuple[str, _Rule], ...]:
    """The attributes of a declared class that contain names at any depth."""
    hints = get_type_hints(kind, include_extras=True)
    found = ((one.name, _rule(hints[one.name])) for one in fields(kind))
    return tuple((attribute, rule) for attribute, rule in found if rule is not None)


def _rule(annotation: Any) -> _Rule | None:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if _is_name(annotation):
        return _name
    if origin in (Union, UnionType):
        # The only union in declarations is `X | None`, and `None` is not translated.
        return _rule(next(one for one in arguments if one is not NoneType))
    if origin in (list, tuple, set, frozenset):
        return _sequence(origin, arguments[0])
    if origin in (dict, Mapping):
        return _table(*arguments)
    # A record may contain itself: its rules are looked up when needed.
    return _record if isinstance(annotation, type) and is_dataclass(annotation) else None


def _name(names: _Names, name: str) -> str:
    return names.other(name)


def _is_name(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated and RESOURCE in annotation.__metadata__


def _sequence(kind: Callable[[list[Any]], Any], element: Any) -> _Rule | None:
    rule = _rule(element)
    if rule is None:
        return None
    if _is_name(element):
        return lambda names, value: kind([names.other(one) for one in value if names.is_kept(one)])
    return lambda names, value: kind([rule(names, one) for one in value])


def _same(names: _Names, value: Any) -> Any:
    return value


def _table(key_type: Any, member_type: Any) -> _Rule | None:
    key_rule, member_rule = _rule(key_type), _rule(member_type)
    if key_rule is None and member_rule is None:
        return None
    of_key: Final = key_rule or _same
    of_member: Final = member_rule or _same
    if _is_name(key_type):
        return lambda names, value: {
            names.other(key): of_member(names, one) for key, one in value.items() if names.is_kept(key)
        }
    return lambda names, value: {of_key(names, key): of_member(names, one) for key, one in value.items()}
