"""Topic queues: the queues of every topic by broker name, and the mappings of static topics.

Owns both tables. Invariant: a topic in a table has at least one broker. Threads: the event loop's only.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from rmqpy.protocol.requests.routes import QueueData
from rmqpy.protocol.topics import Permission, TopicConfig

T = TypeVar("T")


class TopicQueues:
    """The tables."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, object]] = {}

    def of(self, topic: str) -> Mapping[str, QueueData]:
        """The queues of a topic by broker."""
        return self._topics.get(topic, {})

    def mapping(self, topic: str) -> dict[str, object] | None:
        """The mapping of a static topic by broker."""
        return dict(self._mappings[topic]) if topic in self._mappings else None

    def topics(self) -> list[str]:
        """Every topic with a queue somewhere."""
        return list(self._topics)

    def topics_at(self, brokers: Collection[str]) -> list[str]:
        """Topics with a queue at one of these brokers."""
        return [topic for topic, queues in self._topics.items() if not queues.keys().isdisjoint(brokers)]

    def topics_where(self, predicate: Callable[[int], bool]) -> list[str]:
        """Topics whose `topicSysFlag`, the same at every broker, fulfils the predicate."""
        return [
            topic
            for topic, queues in self._topics.items()
            if predicate(next(iter(queues.values())).topic_sys_flag)
        ]

    def put(self, topic: str, queue: QueueData) -> None:
        """Set the queues of a topic at one broker."""
        self._topics.setdefault(topic, {})[queue.broker_name] = queue

    def put_mapping(self, topic: str, broker: str, mapping: object) -> None:
        """Set the mapping of a static topic at one broker."""
        self._mappings.setdefault(topic, {})[broker] = mapping

    def drop(self, topic: str, broker: str) -> None:
        """Forget a topic at one broker."""
        for table in (self._topics, self._mappings):
            by_broker = table.get(topic, {})
            by_broker.pop(broker, None)
            if not by_broker:
                table.pop(topic, None)

    def sweep(self, removed: Collection[str], read_only: Collection[str]) -> None:
        """Take the queues of removed brokers out of every topic, and the write bit from those of others: one pass."""
        if not removed and not read_only:
            return
        self._topics = _without(self._topics, removed)
        self._mappings = _without(self._mappings, removed)
        for queues in self._topics.values():
            for broker in queues.keys() & read_only:
                queues[broker] = replace(queues[broker], perm=queues[broker].perm & ~Permission.WRITE)

    def wipe_write_permission(self, broker: str) -> int:
        """Take the write bit from every topic of a broker; how many it has. The next changed table restores it."""
        return self._set_permission(broker, lambda perm: perm & ~Permission.WRITE)

    def add_write_permission(self, broker: str) -> int:
        """Make every topic of a broker readable and writable; how many it has.

        Topics that were read-only before become writable too: the original does the same, and tools expect it.
        """
        return self._set_permission(broker, lambda perm: Permission.READ_WRITE)

    def _set_permission(self, broker: str, change: Callable[[int], int]) -> int:
        topics = [queues for queues in self._topics.values() if broker in queues]
        for queues in topics:
            queues[broker] = replace(queues[broker], perm=int(change(queues[broker].perm)))
        return len(topics)


def queue_of(broker: str, config: TopicConfig, *, is_read_only: bool) -> QueueData:
    """The queues of a topic as its broker has configured it."""
    return QueueData(
        broker_name=broker,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm & ~Permission.WRITE if is_read_only else config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )


def _without(table: dict[str, dict[str, T]], brokers: Collection[str]) -> dict[str, dict[str, T]]:
    """The entries of other brokers; topics that were at these brokers only are left out."""
    left: dict[str, dict[str, T]] = {}
    for topic, by_broker in table.items():
        if not by_broker.keys().isdisjoint(brokers):
            by_broker = {name: of for name, of in by_broker.items() if name not in brokers}
        if by_broker:
            left[topic] = by_broker
    return left
