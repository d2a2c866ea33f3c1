"""Arguments of wrong types: refused by name when they are passed, not where they first do harm."""

from __future__ import annotations

from types import NoneType
from typing import Any, get_args

#: What `isinstance` takes; unions of abstract classes are no types to a type checker.
Kind = Any


def check_types(**arguments: tuple[object, Kind]) -> None:
    """Raise `TypeError` for the first value that is not of its type.

    >>> check_types(retries=("3", int))
    Traceback (most recent call last):
    TypeError: retries must be int, not str
    """
    for name, (value, expected) in arguments.items():
        if not isinstance(value, expected):
            raise TypeError(f"{name} must be {_words(expected)}, not {type(value).__name__}")


def _words(expected: Kind) -> str:
    kinds = get_args(expected) or (expected,)
    # Whole numbers are as good as others where those are taken.
    names = [kind.__name__ for kind in kinds if kind is not NoneType and not (kind is int and float in kinds)]
    return " or ".join([*names, "None"] if NoneType in kinds else names)
