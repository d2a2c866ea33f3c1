"""Subscriptions of a group: topics, each with tags or SQL. They may change while the consumer runs.

Owns the table that heartbeats announce. Invariant: a published table never changes, and the version of a subscription
grows with each change. Any thread: changes replace the whole table.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from rmqpy.client.group.checks import check_filter
from rmqpy.message import Filter, Sql
from rmqpy.protocol.requests.clients import SubscriptionData


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic of a group."""

    topic: str
    #: `*`, the wanted tags such as `"paid || refunded"`, or SQL.
    filter: Filter
    #: Milliseconds, as in Java.
    version: int

    def data(self) -> SubscriptionData:
        """Return the subscription as heartbeats encode it."""
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
        """`fixed`: topics that are always read, without a filter."""
        self._table: Mapping[str, Subscription] = {}
        for topic in fixed:
            self.put(topic, "*")

    @property
    def table(self) -> Mapping[str, Subscription]:
        """The subscriptions by topic."""
        return self._table

    def put(self, topic: str, wanted: Filter) -> None:
        """Subscribe to `topic`, or change its filter. Raises `ConfigError` for an invalid expression."""
        known = self._table.get(topic)
        check_filter(wanted)
        if known is None or known.filter != wanted:
            version = max(time.time_ns() // 1_000_000, known.version + 1 if known else 0)
            self._table = {**self._table, topic: Subscription(topic, wanted, version)}

    def remove(self, topic: str) -> None:
        """Unsubscribe from `topic`."""
        self._table = {name: one for name, one in self._table.items() if name != topic}

    def filter(self, topic: str) -> Filter:
        """Return the filter of a topic; `*` for a topic that was just removed."""
        one = self._table.get(topic)
        return one.filter if one else "*"


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode()`, by which brokers filter tags.

    >>> java_hash("TagA")
    2598919
    """
    result = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        result = (31 * result + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    return result - (1 << 32) if result >= 1 << 31 else result
