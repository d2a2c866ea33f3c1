"""Topic queues: the queues of every topic by broker name, and the mappings of static topics.

Owns both tables and their memory. Invariants: a topic in a table has at least one broker; a change refused for lack
of room has changed nothing. Threads: only the event loop's.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from rmqpy.protocol import fastjson
from rmqpy.protocol.requests.routes import QueueData
from rmqpy.protocol.topics import Permission, TopicTable

T = TypeVar("T")

#: The most bytes of the tables: the topics of 20 brokers with 40,000 each.
TABLE_BYTES_MAX: Final = 256 << 20
#: Bytes of a topic on one broker, without its name.
_PLACE_BYTES: Final = 256
#: Bytes of a character of a mapping.
_MAPPING_BYTES: Final = 16


class RoutesFullError(Exception):
    """No room for another broker or topic."""


class BrokerTopics(NamedTuple):
    """One broker's registration in the form of the tables."""

    #: Topic and broker name to queues.
    queues: dict[str, dict[str, QueueData]]
    #: Topic to mapping, and to the bytes that it takes.
    mappings: dict[str, object]
    mapping_bytes: dict[str, int]

    @classmethod
    def read(cls, broker: str, table: TopicTable) -> "BrokerTopics":
        """The topics of a table as queues of a broker. Pure; any thread."""
        mappings = table.topic_queue_mapping_info_map or {}
        return cls(
            {
                topic: {
                    broker: QueueData(
                        broker_name=broker,
                        read_queue_nums=config.read_queue_nums,
                        write_queue_nums=config.write_queue_nums,
                        perm=config.perm,
                        topic_sys_flag=config.topic_sys_flag,
                    )
                }
                for topic, config in table.topic_config_table.items()
            },
            mappings,
            {
                topic: len(topic) + _MAPPING_BYTES * len(fastjson.dumps(mapping))
                for topic, mapping in mappings.items()
            },
        )

    def for_reading(self) -> "BrokerTopics":
        """The same without the write bit."""
        return self._replace(
            queues={
                topic: {name: _without_write(queue) for name, queue in queues.items()}
                for topic, queues in self.queues.items()
            }
        )


class TopicQueues:
    """The tables."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, object]] = {}
        #: Of mappings, by topic and broker.
        self._mapping_bytes: dict[str, dict[str, int]] = {}
        self._bytes = 0
        #: Incremented when a topic is added or removed.
        self.generation = 0

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
        """Topics with a queue on one of these brokers."""
        return [topic for topic, queues in self._topics.items() if not queues.keys().isdisjoint(brokers)]

    def topics_where(self, predicate: Callable[[int], bool]) -> list[str]:
        """Topics whose `topicSysFlag`, equal on all brokers, fulfils the predicate."""
        return [
            topic
            for topic, queues in self._topics.items()
            if predicate(next(iter(queues.values())).topic_sys_flag)
        ]

    def check_room(self, topics: BrokerTopics) -> None:
        """Raises `RoutesFullError` if `put` of all of these would exceed the limit."""
        needed = 0
        for topic, queues in topics.queues.items():
            known = self._topics.get(topic)
            for broker in queues:
                if known is None or broker not in known:
                    needed += _PLACE_BYTES + len(topic)
        needed += sum(topics.mapping_bytes.values())
        if needed and self._bytes + needed > TABLE_BYTES_MAX:
            raise RoutesFullError(
                f"the topics of this name server take {self._bytes >> 20} MiB; the limit is {TABLE_BYTES_MAX >> 20} MiB"
            )

    def put(self, queues: Mapping[str, Mapping[str, QueueData]], *, only_missing: bool = False) -> None:
        """Set the queues of topics by broker; `only_missing`: only where there are none yet."""
        for topic, by_broker in queues.items():
            known = self._topics.get(topic)
            if known is None:
                known = self._topics[topic] = {}
                self.generation += 1
            for broker, queue in by_broker.items():
                if broker not in known:
                    self._bytes += _PLACE_BYTES + len(topic)
                elif only_missing:
                    continue
                known[broker] = queue

    def put_mappings(self, broker: str, topics: BrokerTopics) -> None:
        """Set the mappings of static topics at one broker, and remove those of topics that are ordinary now."""
        for topic in topics.queues.keys() & self._mappings.keys() - topics.mappings.keys():
            self._bytes -= self._mapping_bytes[topic].pop(broker, 0)
            self._mappings[topic].pop(broker, None)
            if not self._mappings[topic]:
                del self._mappings[topic], self._mapping_bytes[topic]
        for topic, mapping in topics.mappings.items():
            self._mappings.setdefault(topic, {})[broker] = mapping
            sizes = self._mapping_bytes.setdefault(topic, {})
            self._bytes += topics.mapping_bytes[topic] - sizes.get(broker, 0)
            sizes[broker] = topics.mapping_bytes[topic]

    def drop(self, topic: str, broker: str) -> None:
        """Remove a topic on one broker."""
        self._bytes -= self._mapping_bytes.get(topic, {}).get(broker, 0)
        if broker in self._topics.get(topic, {}):
            self._bytes -= _PLACE_BYTES + len(topic)
            self.generation += 1
        for table in (self._topics, self._mappings, self._mapping_bytes):
            by_broker = table.get(topic, {})
            by_broker.pop(broker, None)
            if not by_broker:
                table.pop(topic, None)

    def sweep(self, removed: Collection[str], read_only: Collection[str]) -> None:
        """Remove the queues of removed brokers from every topic, and the write bit from those of others."""
        if removed:
            self._remove(removed)
            self.generation += 1
        if read_only:
            for queues in self._topics.values():
                for broker in queues.keys() & read_only:
                    queues[broker] = _without_write(queues[broker])

    def _remove(self, brokers: Collection[str]) -> None:
        found = {
            topic
            for table in (self._topics, self._mappings)
            for topic, by_broker in table.items()
            if not by_broker.keys().isdisjoint(brokers)
        }
        copied = sum(len(self._topics.get(topic, ())) for topic in found)
        if len(found) * len(brokers) <= max(len(self._topics), copied):
            for topic in found:
                for broker in brokers:
                    self.drop(topic, broker)
            return
        # Many together: one pass is cheaper than one for each.
        self._topics = _without(self._topics, brokers)
        self._mappings = _without(self._mappings, brokers)
        self._mapping_bytes = _without(self._mapping_bytes, brokers)
        self._bytes = sum(
            len(queues) * (_PLACE_BYTES + len(topic)) for topic, queues in self._topics.items()
        ) + sum(sum(sizes.values()) for sizes in self._mapping_bytes.values())

    def wipe_write_permission(self, broker: str) -> int:
        """Remove the write bit from every topic of a broker. Returns their number. The next changed table restores
        it."""
        return self._set_permission(broker, lambda perm: perm & ~Permission.WRITE)

    def add_write_permission(self, broker: str) -> int:
        """Make every topic of a broker readable and writable. Returns their number.

        Topics that were read-only become writable too: Apache's broker does the same, and tools expect it.
        """
        return self._set_permission(broker, lambda perm: Permission.READ_WRITE)

    def _set_permission(self, broker: str, change: Callable[[int], int]) -> int:
        topics = [queues for queues in self._topics.values() if broker in queues]
        for queues in topics:
            queues[broker] = replace(queues[broker], perm=int(change(queues[broker].perm)))
        return len(topics)


def _without_write(queue: QueueData) -> QueueData:
    return replace(queue, perm=queue.perm & ~Permission.WRITE)


def _without(table: dict[str, dict[str, T]], brokers: Collection[str]) -> dict[str, dict[str, T]]:
    """The entries of other brokers, without topics that were only on these."""
    left: dict[str, dict[str, T]] = {}
    for topic, by_broker in table.items():
        if not by_broker.keys().isdisjoint(brokers):
            by_broker = {name: of for name, of in by_broker.items() if name not in brokers}
        if by_broker:
            left[topic] = by_broker
    return left
