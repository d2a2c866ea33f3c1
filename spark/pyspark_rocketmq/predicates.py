"""Predicates: filters of a query on properties as SQL92, which brokers evaluate.

Spark applies every filter again, so an expression may admit more than its filter but never less. A filter that Spark
and brokers evaluate differently has no expression: Spark compares `<` and `>` as text, brokers compare numbers. Pure.
Imports the filters of PySpark, which Spark 4.0 lacks.
"""

from collections.abc import Iterable
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    In,
    IsNotNull,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

import rmqpy
from rmqpy.errors import ConfigError

#: Words that cannot name a property in SQL92.
_KEYWORDS = frozenset(
    {"AND", "OR", "NOT", "IS", "IN", "BETWEEN", "CONTAINS", "STARTSWITH", "ENDSWITH", "TRUE", "FALSE", "NULL"}
)

#: Columns that are properties.
_COLUMNS = {("tags",): "TAGS", ("keys",): "KEYS"}


def predicate(each: Filter) -> str | None:
    """Return a filter on properties as SQL92, or `None` if no expression matches it."""
    text = _predicate(each)
    if text is None:
        return None
    try:
        rmqpy.sql(text)
    except ConfigError:
        # It is too long, or SQL92 cannot spell the name of the property.
        return None
    return text


def conjunction(parts: Iterable[str]) -> str:
    """Return an expression that all parts have to match."""
    return " AND ".join(f"({part})" for part in parts)


def _predicate(each: Filter) -> str | None:
    if isinstance(each, Not):
        return _comparison(each.child, is_negated=True) if isinstance(each.child, EqualTo | In) else None
    return _comparison(each, is_negated=False)


def _comparison(each: Filter, *, is_negated: bool) -> str | None:
    name = _property(each)
    if name is None:
        return None
    match each:
        case IsNotNull():
            return f"{name} IS NOT NULL"
        case EqualTo(_, value) | EqualNullSafe(_, value) if _is_plain(value):
            return f"{name} {'<>' if is_negated else '='} {_quoted(value)}"
        case In(_, values) if values and all(map(_is_plain, values)):
            return f"{name} {'NOT IN' if is_negated else 'IN'} ({', '.join(map(_quoted, values))})"
        case StringStartsWith(_, value) if _is_plain(value):
            return f"{name} STARTSWITH {_quoted(value)}"
        case StringEndsWith(_, value) if _is_plain(value):
            return f"{name} ENDSWITH {_quoted(value)}"
        case StringContains(_, value) if _is_plain(value):
            return f"{name} CONTAINS {_quoted(value)}"
    return None


def _property(each: Filter) -> str | None:
    """Return the name of the filtered property in SQL92."""
    place = tuple(getattr(each, "attribute", ()))
    match place:
        case ("properties", name) if name.upper() not in _KEYWORDS:
            return str(name)
    return _COLUMNS.get(place)


def _is_plain(value: Any) -> bool:
    """Return whether Spark and brokers compare this text alike. Properties are never empty, and only Spark reads
    invalid UTF-8 in them as U+FFFD."""
    return isinstance(value, str) and value != "" and "\ufffd" not in value


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
