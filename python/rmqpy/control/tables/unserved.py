"""Unsupported settings of topics and groups: refused when requested, logged at the start when found in a file. Pure,
except for the log; any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from rmqpy.control.tables.listed import listed
from rmqpy.protocol.requests.groups import GroupRetryPolicy, SubscriptionGroup
from rmqpy.protocol.topics import TopicConfig

log = logging.getLogger(__name__)

T = TypeVar("T", TopicConfig, SubscriptionGroup)

#: Topic types that need more than an append-only store, with the alternative.
_UNSERVED_TOPICS: Final = {
    (
        "queue.type",
        "BatchCQ",
    ): "it needs a different kind of queue; omit it and send batches to an ordinary topic, "
    "which also stores each as a unit",
}


#: The most names in one log line.
_NAMED_MAX: Final = 5


def unserved_of_topic(topic: TopicConfig) -> Iterator[str]:
    """Yield a sentence for each setting of a topic that has no effect."""
    for name, value in topic.attributes.items():
        if (name, value) in _UNSERVED_TOPICS:
            yield f"{name}={value} is not served yet: {_UNSERVED_TOPICS[name, value]}"
    if topic.attributes.get("reserve.time", "-1") != "-1":
        yield "reserve.time is not served: messages of every topic are kept for fileReservedTime"


def unserved_of_group(group: SubscriptionGroup) -> Iterator[str]:
    """Yield a sentence for each setting of a group that has no effect."""
    if group.group_retry_policy not in (None, GroupRetryPolicy()):
        yield "groupRetryPolicy is not served yet: it is for POP consumption"
    if "lite.sub.wildcard" in group.attributes:
        yield "lite.sub.wildcard is not served: clients subscribe to lite topics by name"


def warn(kind: str, entries: Mapping[str, T], unserved: Callable[[T], Iterable[str]]) -> None:
    """Log settings in a file that have no effect, one line per reason."""
    named: dict[str, list[str]] = {}
    for name, entry in entries.items():
        for reason in unserved(entry):
            named.setdefault(reason, []).append(name)
    for reason, names in named.items():
        log.warning("%s %s%s: %s", kind, *listed(names, _NAMED_MAX), reason)
