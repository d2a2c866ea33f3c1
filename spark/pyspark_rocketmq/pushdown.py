"""Push-down: filters of a query exclude messages from a read.

Decides which filters the read settles and which Spark must still apply. Filters on the place of a message are settled
here. Times, tags and properties only narrow the read: brokers look up times by milliseconds, compare tags by hash, and
may be of another release. Imports the filters of PySpark, which Spark 4.0 lacks.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from math import ceil, floor
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

import rmqpy
from pyspark_rocketmq.batch import TopicReader
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.predicates import conjunction, predicate
from pyspark_rocketmq.schema import Asked
from pyspark_rocketmq.wanted import Narrowing
from rmqpy.errors import ConfigError
from rmqpy.message import Filter as Wanted
from rmqpy.message import Sql

#: Maximum number of tags in one filter.
_TAGS_MAX: Final = 1_000
#: A tag without white space and operators.
_PLAIN: Final = re.compile(r"[^\s|*<>='\"()]+")
#: Columns that name a queue, and their positions in its name.
_PLACES = {"topic": 0, "brokerName": 1, "queueId": 2}


class FilteringReader(TopicReader):
    """A batch read that uses filters. A class of its own, because Spark refuses every read of a class with
    `pushFilters` while `spark.sql.python.filterPushdown.enabled` is off."""

    def __init__(self, options: Options, asked: Asked) -> None:
        super().__init__(options, asked)
        self._narrowing: Filtered = Filtered()

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802
        """Use filters to read less. Returns those that Spark must still apply."""
        return self._narrowing.take(filters)


class Filtered(Narrowing):
    """The part of the topics that a conjunction of filters leaves to be read."""

    def __init__(self) -> None:
        super().__init__()
        #: The tags of which a message needs one, if tags are filtered.
        self._tags: tuple[str, ...] | None = None
        #: Predicates on other properties by column: that it exists, and others.
        self._present: dict[str, str] = {}
        self._predicates: list[tuple[str, str]] = []

    def take(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Use filters, and yield those that Spark must still apply. A filter that cannot be used is left to Spark."""
        for each in filters:
            try:
                is_settled = self._use(each)
            except (ArithmeticError, TypeError, ValueError):
                # For instance, a time out of range.
                is_settled = False
            if not is_settled:
                yield each

    def by_tags(self, wanted: Wanted) -> Wanted:
        """Return the filter for any broker."""
        return wanted if wanted != "*" or self._tags is None else " || ".join(self._tags)

    def by_properties(self, wanted: Wanted) -> Sql | None:
        """Return a stricter filter for brokers that evaluate SQL92, or `None`. Tags of the options are not combined
        with predicates: brokers compare tags without reading the message."""
        narrowed = {column for column, _ in self._predicates} | ({"tags"} if self._tags else set())
        # Spark adds `IS NOT NULL` to every other filter on a column.
        present = [asked for column, asked in self._present.items() if column not in narrowed]
        predicates = [*(asked for _, asked in self._predicates), *present]
        if not predicates or not (isinstance(wanted, Sql) or wanted == "*"):
            return None
        parts = [wanted.expression] if isinstance(wanted, Sql) else []
        if self._tags is not None:
            parts += filter(None, [predicate(In(("tags",), self._tags))])
        try:
            return rmqpy.sql(conjunction([*parts, *predicates]))
        except ConfigError:
            # It is too long for one expression.
            return None

    def _use(self, each: Filter) -> bool:
        """Use a filter. Returns whether that settles it."""
        column = ".".join(getattr(each, "attribute", ()))
        values = _values(each)
        if column in _PLACES and values is not None:
            self._places.append((_PLACES[column], frozenset(values)))
            return True
        if column == "queueOffset":
            return self._bound(each, self._offsets, int)
        if column == "storeTimestamp":
            self._bound(each, self._times, _milliseconds)
        if column == "tags" and values and self._tags is None and _are_plain(values):
            self._tags = tuple(sorted(values))
        elif (asked := predicate(each)) is not None:
            if isinstance(each, IsNotNull):
                self._present[column] = asked
            else:
                self._predicates.append((column, asked))
        return False

    def _bound(self, each: Filter, narrow: Callable[[Any, Any], None], number: Callable[[Any], Any]) -> bool:
        match each:
            case EqualTo(_, value):
                narrow(number(value), number(value) + 1)
            case GreaterThan(_, value):
                narrow(number(value) + (1 if number is int else 0), None)
            case GreaterThanOrEqual(_, value):
                narrow(number(value), None)
            case LessThan(_, value):
                narrow(None, number(value) if number is int else number(value) + 1)
            case LessThanOrEqual(_, value):
                narrow(None, number(value) + 1)
            case _:
                return False
        return True

    def _offsets(self, first: int | None, last: int | None) -> None:
        if first is not None:
            self._first = max(self._first, first)
        if last is not None:
            self._last = last if self._last is None else min(self._last, last)

    def _times(self, first: float | None, last: float | None) -> None:
        begin, end = self.times_ms
        if first is not None:
            begin = max(begin or 0, floor(first))
        if last is not None:
            end = ceil(last) if end is None else min(end, ceil(last))
        self.times_ms = (begin, end)


def _values(each: Filter) -> tuple[Any, ...] | None:
    """Return the values of an equality, or `None` for another filter."""
    match each:
        case EqualTo(_, value):
            return (value,)
        case In(_, values):
            return tuple(values)
    return None


def _milliseconds(moment: Any) -> float:
    return moment.timestamp() * 1000 if isinstance(moment, datetime) else float(moment)


def _are_plain(tags: Collection[Any]) -> bool:
    """Return whether a tag expression of these tags cannot be mistaken for SQL."""
    return len(tags) <= _TAGS_MAX and all(isinstance(tag, str) and _PLAIN.fullmatch(tag) for tag in tags)
