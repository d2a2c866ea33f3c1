"""Subscriptions of a group: topics, each with tags or SQL. They may change while its consumer runs.

Owns the table a consumer announces with each heartbeat. Invariant: a table once handed out does not change, and the
version of a subscription grows with each change. Any thread: changes replace the whole table.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from rmqpy.client.checks import check_filter
from rmqpy.message import Filter, Sql
from rmqpy.protocol.requests.clients import SubscriptionData


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic of a group."""

    topic: str
    #: `*`, tags that are wanted, `"paid || refunded"`, or SQL.
    filter: Filter
    #: Milliseconds, as Java has it.
    version: int

    def data(self) -> SubscriptionData:
        """As heartbeats say it."""
        if isinstance(self.filter, Sql):
            return SubscriptionData(
                topic=self.topic,
                sub_string=self.filter.expression,
                expression_type="SQL92",
                sub_version=self.version,
            )
        wanted = [] if self.filter.strip() in ("", "*") else [tag.strip() for tag in self.filter.split("||")]
        tags = sorted({tag for tag in wanted if tag})
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.filter,
            tags_set=tags,
            code_set=[java_hash(tag) for tag in tags],
            sub_version=self.version,
        )


class Subscriptions:
    """The topics of one group."""

    def __init__(self, *fixed: str) -> None:
        """`fixed`: topics that are read whole, whatever the user subscribes to."""
        self._table: Mapping[str, Subscription] = {}
        for topic in fixed:
            self.put(topic, "*")

    @property
    def table(self) -> Mapping[str, Subscription]:
        """By topic."""
        return self._table

    def put(self, topic: str, wanted: Filter) -> None:
        """Read `topic` from now on, or with another filter. Raises `ConfigError` for an expression that is none."""
        known = self._table.get(topic)
        check_filter(wanted)
        if known is None or known.filter != wanted:
            version = max(time.time_ns() // 1_000_000, known.version + 1 if known else 0)
            self._table = {**self._table, topic: Subscription(topic, wanted, version)}

    def remove(self, topic: str) -> None:
        """Read `topic` no longer."""
        self._table = {name: one for name, one in self._table.items() if name != topic}

    def filter(self, topic: str) -> Filter:
        """The filter of a topic; everything, for a topic that was given up a moment ago."""
        one = self._table.get(topic)
        return one.filter if one else "*"


def java_hash(text: str) -> int:
    """`String.hashCode()`: the number brokers filter tags by.

    >>> java_hash("TagA")
    2598919
    """
    result = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        result = (31 * result + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    return result - (1 << 32) if result >= 1 << 31 else result
