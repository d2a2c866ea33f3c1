"""Topics exchanged by brokers and name servers: configuration, permission, table version."""

from dataclasses import field
from enum import Enum, IntFlag
from typing import Final

from rmqpy import _native
from rmqpy.errors import DecodeError
from rmqpy.protocol.declare import Resource, record

#: The most queues of one topic over all brokers: each client that uses it has an object for each.
ROUTE_QUEUES_MAX: Final = 131_072


class Permission(IntFlag):
    """Bits of a topic's `perm`."""

    INHERIT = 1
    WRITE = _native.PERMISSION_WRITE
    READ = _native.PERMISSION_READ
    PRIORITY = 8
    READ_WRITE = READ | WRITE


class TopicFlag(IntFlag):
    """Bits of `topicSysFlag`."""

    UNIT = 1
    UNIT_SUBSCRIPTION = 2


class TopicFilterType(Enum):
    """Whether a message of the topic may carry several tags."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


@record
class DataVersion:
    """The version of a table. Tables with equal versions are not copied."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        """The version after another change. Name servers ignore a table whose version has not changed."""
        return DataVersion(counter=self.counter + 1, state_version=self.state_version, timestamp=now_ms)


@record
class TopicConfig:
    """One topic of one broker."""

    topic_name: Resource = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = Permission.READ_WRITE
    order: bool = False
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    attributes: dict[str, str] = field(default_factory=dict)


@record
class TopicTable:
    """All topics of a broker: the body of replies and registrations. The last three concern static topics."""

    data_version: DataVersion = DataVersion()
    topic_config_table: dict[Resource, TopicConfig] = field(default_factory=dict)
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_detail_map: dict[str, object] | None = None
    topic_queue_mapping_info_map: dict[str, object] | None = None


def order_queues(topic: str, configured: str) -> list[tuple[str, int]]:
    """The fixed queues of an order topic, `broker-a:4;broker-b:4`: numbers by broker.

    Raises `DecodeError` if it is unreadable or names more queues than a topic may have.
    """
    found = []
    for part in configured.split(";"):
        broker, _, count = part.partition(":")
        if not count.isdecimal():
            raise DecodeError(
                f"the order configuration of {topic} is unreadable: {configured[:200]!r}", topic=topic
            )
        # Python refuses to parse a number of thousands of digits.
        found.append((broker, int(count) if len(count) < 10 else ROUTE_QUEUES_MAX + 1))
    check_queues(topic, sum(count for _, count in found))
    return found


def check_queues(topic: str, queues: int) -> None:
    """Raises `DecodeError` if a topic has more queues than clients accept."""
    if queues > ROUTE_QUEUES_MAX:
        raise DecodeError(f"{topic} has more than {ROUTE_QUEUES_MAX} queues in its route", topic=topic)
