"""Names of topics and groups: valid, reserved and derived ones.

Pure; any thread.
"""

from __future__ import annotations

import re
from typing import Final

from rmqpy import _native

RETRY_PREFIX: Final = _native.RETRY_PREFIX
DEAD_LETTER_PREFIX: Final = _native.DEAD_LETTER_PREFIX
#: Light queues, which hold messages of other topics, and groups that only read such queues.
LIGHT_PREFIX: Final = _native.LIGHT_PREFIX
SYSTEM_TOPIC_PREFIX: Final = _native.SYSTEM_TOPIC_PREFIX
#: Topics of brokers that synchronise the members of their group.
BROKER_MEMBER_PREFIX: Final = f"{SYSTEM_TOPIC_PREFIX}SYNC_BROKER_MEMBER_"
SYSTEM_GROUP_PREFIX: Final = _native.SYSTEM_GROUP_PREFIX
#: The group for a broker's progress of transactions. Clients cannot commit, reset or delete it.
TRANSACTION_GROUP: Final = _native.TRANSACTION_GROUP
#: Topics that only brokers write: their own records, and messages waiting for other topics.
BROKER_TOPICS: Final = frozenset(_native.BROKER_TOPICS)

AUTO_CREATE_TOPIC: Final = _native.AUTO_CREATE_TOPIC
SCHEDULE_TOPIC: Final = _native.SCHEDULE_TOPIC
HALF_TOPIC: Final = _native.HALF_TOPIC
OP_HALF_TOPIC: Final = _native.OP_HALF_TOPIC
UNDECIDED_TOPIC: Final = _native.UNDECIDED_TOPIC
#: The topic in which timed messages wait.
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
SELF_TEST_TOPIC: Final = _native.SELF_TEST_TOPIC
OFFSET_MOVED_TOPIC: Final = _native.OFFSET_MOVED_TOPIC
BENCHMARK_TOPIC: Final = _native.BENCHMARK_TOPIC
#: The default topic for message traces.
TRACE_TOPIC: Final = _native.TRACE_TOPIC
#: The same for clients with the access channel CLOUD, one topic per region.
CLOUD_TRACE_PREFIX: Final = f"{SYSTEM_TOPIC_PREFIX}TRACE_DATA_"

_VALID: Final = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)

#: Reserved on every broker; others are named after cluster and broker.
SYSTEM_TOPICS: Final = frozenset(
    {
        *_native.SYSTEM_TOPICS,
        *(topic for topic in _native.BROKER_TOPICS if not topic.startswith(SYSTEM_TOPIC_PREFIX)),
    }
)

#: Groups that exist from the start.
SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)


#: The property of a dead letter with the last error or result of its handler in rmqpy.
CONSUME_ERROR: Final = "CONSUME_ERROR"


def retry_topic(group: str) -> str:
    """The topic of messages for another delivery to the group."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """The topic of messages that the group gave up."""
    return DEAD_LETTER_PREFIX + group


def is_derived(topic: str) -> bool:
    """Whether the topic is a group's retry or DLQ topic."""
    return topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))


def lite_queue(parent: str, lite_topic: str) -> str | None:
    """Return the queue of a lite topic; `None` for a name that no lite topic may have.

    >>> lite_queue("sessions", "s-1")
    '%LMQ%$sessions$s-1'
    """
    return _native.lite_queue(parent, lite_topic)


def lite_parts(queue: str) -> tuple[str, str] | None:
    """Return the parent and the lite topic of a queue; `None` for other queues."""
    return _native.lite_parts(queue)


def is_light(name: str) -> bool:
    """Whether the name is that of a light queue, or of a group that only reads such queues."""
    return name.startswith(LIGHT_PREFIX)


def group_of(topic: str) -> str:
    """The group of a retry or DLQ topic."""
    return topic.removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX)


def pop_retry_topic(group: str, topic: str, *, is_v2: bool = False) -> str:
    """The topic from which a group pops messages of `topic` again; see `enableRetryTopicV2`."""
    return f"{RETRY_PREFIX}{group}{'+' if is_v2 else '_'}{topic}"


def popped_topic(group: str, name: str) -> str:
    """The topic of a group's POP retry topic, and any other name as it is."""
    rest = name.removeprefix(RETRY_PREFIX + group)
    return rest[1:] if rest != name and rest[:1] in ("_", "+") else name


def topic_fault(topic: str) -> str | None:
    """Return the first error in a topic's name, or None."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _VALID.fullmatch(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    longest = _native.GROUP_TOPIC_BYTES_MAX if is_derived(topic) else _native.TOPIC_BYTES_MAX
    if len(topic) > longest:
        return f"The specified topic is longer than topic max length {longest}."
    return None


def group_fault(group: str) -> str | None:
    """Return the first error in a group's name, or None."""
    if not group.strip():
        return "The specified group is blank."
    if not _VALID.fullmatch(group):
        return "The specified group contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(group) > _native.GROUP_BYTES_MAX:
        return f"The specified group is longer than group max length {_native.GROUP_BYTES_MAX}."
    return None


def is_system_group(group: str) -> bool:
    """Whether a group is reserved on every broker."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Whether a topic is reserved on every broker."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_trace_topic(topic: str) -> bool:
    """Whether a topic is a default trace topic: reserved, but created by a first send."""
    return topic == TRACE_TOPIC or topic.startswith(CLOUD_TRACE_PREFIX)
