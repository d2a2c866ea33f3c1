"""Wanted messages: the filter of the options, and what is left of a read after filters of the query.

Independent of the version of PySpark; any thread.
"""

from typing import Any

import rmqpy
from pyspark_rocketmq.offsets import Queue
from pyspark_rocketmq.options import OptionError, Options
from rmqpy.errors import ConfigError
from rmqpy.message import Filter as Wanted
from rmqpy.message import Sql


def wanted_by(options: Options) -> Wanted:
    """Return the filter of the options. Raises `OptionError` for invalid SQL, and for SQL in place of tags."""
    expression = options.expression
    try:
        filtered = rmqpy.sql(expression)
    except ConfigError as error:
        if options.expression_type == "SQL92":
            raise OptionError(f"option 'subExpression': {error}") from None
        return expression
    if options.expression_type == "SQL92":
        return filtered
    # A single word is valid as a tag and as SQL.
    if not expression.isidentifier():
        raise OptionError(
            f"option 'subExpression': {expression!r} is SQL, not tags such as 'paid || refunded'; "
            "set 'subExpressionType' to 'SQL92'"
        )
    return expression


class Narrowing:
    """The part of the topics to read: all of it, unless filters of the query narrow it. Picklable."""

    def __init__(self) -> None:
        self._places: list[tuple[int, frozenset[Any]]] = []
        self._first = 0
        self._last: int | None = None
        #: Store times in milliseconds: from, and up to but not including.
        self.times_ms: tuple[int | None, int | None] = (None, None)

    def admits(self, queue: Queue) -> bool:
        """Return whether messages of this queue may be wanted."""
        return all(queue[place] in values for place, values in self._places)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return the part of a range of offsets to read."""
        first = max(first, self._first)
        return first, max(first, last if self._last is None else min(last, self._last))

    def by_tags(self, wanted: Wanted) -> Wanted:
        """Return the filter for any broker."""
        return wanted

    def by_properties(self, wanted: Wanted) -> Sql | None:
        """Return a stricter filter for brokers that evaluate SQL92, or `None`."""
        return None
