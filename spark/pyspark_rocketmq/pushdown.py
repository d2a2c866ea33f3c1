"""Filters of a query, as far as they exclude messages from a read.

Owns the decision which of them are settled by reading less, and which Spark must still apply: everything about the
place of a message is settled here; times, tags and properties only narrow the read, because a broker finds messages by
milliseconds, filters by hash, and may be another release's.
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
from pyspark_rocketmq.offsets import Queue
from pyspark_rocketmq.predicates import conjunction, predicate
from rmqpy.errors import ConfigError
from rmqpy.message import Filter as Wanted
from rmqpy.message import Sql

#: Tags that brokers take in one filter.
_TAGS_MAX: Final = 1_000
#: A tag without white space and the characters that expressions are made of.
_PLAIN: Final = re.compile(r"[^\s|*<>='\"()]+")
#: Columns that name a queue, and where they stand in its name.
_PLACES = {"topic": 0, "brokerName": 1, "queueId": 2}


class Narrowing:
    """The part of the topics that a conjunction of filters leaves to be read. Picklable."""

    def __init__(self) -> None:
        self._places: list[tuple[int, frozenset[Any]]] = []
        self._first = 0
        self._last: int | None = None
        #: Store times in milliseconds: from, and up to but not including.
        self.times_ms: tuple[int | None, int | None] = (None, None)
        #: Tags of which a message has one, if it matters.
        self._tags: tuple[str, ...] | None = None
        #: What is asked of properties other than that, by column: that it is there, or more.
        self._present: dict[str, str] = {}
        self._predicates: list[tuple[str, str]] = []

    def take(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Use the filters; those that Spark must still apply come back. One that cannot be used is left to Spark: a
        filter that helps to read less is never a reason to fail."""
        for each in filters:
            try:
                is_settled = self._use(each)
            except (ArithmeticError, TypeError, ValueError):
                # Such as a time that no clock shows.
                is_settled = False
            if not is_settled:
                yield each

    def admits(self, queue: Queue) -> bool:
        """Whether messages of this queue may be wanted."""
        return all(queue[place] in values for place, values in self._places)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The rest of a range of offsets."""
        first = max(first, self._first)
        return first, max(first, last if self._last is None else min(last, self._last))

    def by_tags(self, wanted: Wanted) -> Wanted:
        """The messages that are wanted, for any broker."""
        return wanted if wanted != "*" or self._tags is None else " || ".join(self._tags)

    def by_properties(self, wanted: Wanted) -> Sql | None:
        """The same for brokers that evaluate SQL92, where that excludes more. Tags that the user asked for are not
        joined by anything: brokers look at them without reading the message."""
        narrowed = {column for column, _ in self._predicates} | ({"tags"} if self._tags else set())
        # Spark asks that a column is there along with whatever else it asks of it.
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
            # Too much for one expression.
            return None

    def _use(self, each: Filter) -> bool:
        """Take a filter into account; whether that settles it."""
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
    """The values of an equality."""
    match each:
        case EqualTo(_, value):
            return (value,)
        case In(_, values):
            return tuple(values)
    return None


def _milliseconds(moment: Any) -> float:
    return moment.timestamp() * 1000 if isinstance(moment, datetime) else float(moment)


def _are_plain(tags: Collection[Any]) -> bool:
    """Whether tags can stand in a tag expression, where none is taken for SQL."""
    return len(tags) <= _TAGS_MAX and all(isinstance(tag, str) and _PLAIN.fullmatch(tag) for tag in tags)
