"""Settings of topics and groups that another broker would act on and this one does not: refused where an administrator
asks for them, told of at the start where a file has them. Pure, but for the log; any thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from rmqpy.control.tables.attributes import MESSAGE_TYPE
from rmqpy.control.tables.listed import listed
from rmqpy.protocol.requests.groups import GroupRetryPolicy, SubscriptionGroup
from rmqpy.protocol.topics import TopicConfig

log = logging.getLogger(__name__)

T = TypeVar("T", TopicConfig, SubscriptionGroup)

#: Kinds of topics that need more of a store than to append and read, and what to do instead.
_UNSERVED_TOPICS: Final = {
    (MESSAGE_TYPE, "PRIORITY"): "it is for POP consumption; use a topic for each priority",
    (MESSAGE_TYPE, "LITE"): "it is for POP consumption; use topics, or filters by tag",
    (
        "queue.type",
        "BatchCQ",
    ): "it needs queues of another kind; leave it out and send batches to an ordinary topic, "
    "where each is stored in one piece, too",
    ("cleanup.policy", "COMPACTION"): "it needs a store by key; messages are kept for fileReservedTime",
}


#: Names in one line of the log.
_NAMED_MAX: Final = 5


def unserved_of_topic(topic: TopicConfig) -> Iterator[str]:
    """What of a topic's configuration has no effect, each as a sentence."""
    for name, value in topic.attributes.items():
        if (name, value) in _UNSERVED_TOPICS:
            yield f"{name}={value} is not served yet: {_UNSERVED_TOPICS[name, value]}"
    if topic.attributes.get("reserve.time", "-1") != "-1":
        yield "reserve.time is not served: messages of every topic are kept for fileReservedTime"


def unserved_of_group(group: SubscriptionGroup) -> Iterator[str]:
    """The same of a group's."""
    if group.group_retry_policy not in (None, GroupRetryPolicy()):
        yield "groupRetryPolicy is not served yet: it is for POP consumption"
    if "priority.factor" in group.attributes:
        yield "priority.factor is not served yet: it is for POP consumption"
    if any(name.startswith("lite.") for name in group.attributes):
        yield "lite topics are not served"


def warn(kind: str, entries: Mapping[str, T], unserved: Callable[[T], Iterable[str]]) -> None:
    """Log what of a file has no effect: a line for each reason, however many topics or groups it is true of."""
    named: dict[str, list[str]] = {}
    for name, entry in entries.items():
        for reason in unserved(entry):
            named.setdefault(reason, []).append(name)
    for reason, names in named.items():
        log.warning("%s %s%s: %s", kind, *listed(names, _NAMED_MAX), reason)
