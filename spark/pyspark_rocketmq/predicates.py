"""The messages that are wanted: what the options say, and filters of a query on properties as SQL92, which brokers
evaluate.

Of the latter Spark looks at every row again, so that an expression may let through more than its filter, and never
less: what reads otherwise in both worlds has no expression. Comparisons by size are such: those of Spark are of texts,
those of brokers of numbers. Pure; any thread.
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
from pyspark_rocketmq.options import OptionError, Options
from rmqpy.errors import ConfigError
from rmqpy.message import Filter as Wanted

#: Words that are no names of properties in SQL92.
_KEYWORDS = frozenset(
    {"AND", "OR", "NOT", "IS", "IN", "BETWEEN", "CONTAINS", "STARTSWITH", "ENDSWITH", "TRUE", "FALSE", "NULL"}
)

#: Columns that are properties.
_COLUMNS = {("tags",): "TAGS", ("keys",): "KEYS"}


def wanted_by(options: Options) -> Wanted:
    """What the options ask for, as rmqpy takes it. Raises `OptionError` for SQL that is none, and for SQL instead of
    tags."""
    expression = options.expression
    try:
        filtered = rmqpy.sql(expression)
    except ConfigError as error:
        if options.expression_type == "SQL92":
            raise OptionError(f"option 'subExpression': {error}") from None
        return expression
    if options.expression_type == "SQL92":
        return filtered
    # A word is a tag as much as it is SQL.
    if not expression.isidentifier():
        raise OptionError(
            f"option 'subExpression': {expression!r} is SQL, not tags such as 'paid || refunded'; "
            "give 'subExpressionType' as 'SQL92'"
        )
    return expression


def predicate(each: Filter) -> str | None:
    """What a filter asks of properties, in SQL92; `None` for one that no expression stands for."""
    text = _predicate(each)
    if text is None:
        return None
    try:
        rmqpy.sql(text)
    except ConfigError:
        # Too long, or a name that SQL92 cannot say.
        return None
    return text


def conjunction(parts: Iterable[str]) -> str:
    """All of them."""
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
    """The property a filter is about, as SQL92 names it."""
    place = tuple(getattr(each, "attribute", ()))
    match place:
        case ("properties", name) if name.upper() not in _KEYWORDS:
            return str(name)
    return _COLUMNS.get(place)


def _is_plain(value: Any) -> bool:
    """Whether both worlds compare with this text in one way: properties are never empty, and what is no text in them
    reads as U+FFFD in Spark alone."""
    return isinstance(value, str) and value != "" and "\ufffd" not in value


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
