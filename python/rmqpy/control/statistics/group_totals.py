"""Totals of groups: pending messages and dead letters, for lists and for the history.

Owns nothing. `subscribed` is the event loop's; the rest reads the store: call it in a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmqpy.control.clients.registry import Consumers
from rmqpy.control.groups.progress import ConsumerProgress
from rmqpy.control.groups.table import Groups
from rmqpy.control.topics.table import Topics
from rmqpy.protocol import names
from rmqpy.protocol.requests.progress import DeadLetterTotal, GroupTotal
from rmqpy.protocol.topics import TopicConfig

#: Subscribed topics by group; none for a group without members.
Subscribed = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True, eq=False)
class GroupTotals:
    """The totals of one broker."""

    _progress: ConsumerProgress
    _topics: Topics
    _groups: Groups
    _consumers: Consumers

    def subscribed(self) -> Subscribed:
        """Return the current subscriptions of every group."""
        online = self._consumers.groups
        return {
            name: frozenset(online[name].subscriptions) if name in online else frozenset()
            for name in self._groups.table
        }

    def lags(self, subscribed: Subscribed) -> dict[str, GroupTotal]:
        """Return the pending messages of each group."""
        offsets, queues, found = self._progress.offsets, self._progress.queues, {}
        groups = self._groups.table
        for name, now in subscribed.items():
            if (group := groups.get(name)) is None:
                continue
            lag, topics = 0, []
            for topic in self.consumed(name, now):
                topic_name = topic.topic_name
                if not names.is_derived(topic_name):
                    topics.append(topic_name)
                for queue_id in range(queues_of(topic)):
                    position = offsets.query(name, topic_name, queue_id) or 0
                    lag += max(0, queues.max_offset(topic_name, queue_id) - max(0, position))
            found[name] = GroupTotal(
                lag=lag,
                topics=topics,
                retry_max=group.retry_max_times,
                consume_enable=group.consume_enable,
            )
        return found

    def ages(self, subscribed: Subscribed, now_ms: int) -> dict[str, int]:
        """Return the age of each group's oldest pending message in ms; 0 without one."""
        offsets, queues, found = self._progress.offsets, self._progress.queues, {}
        for name, now in subscribed.items():
            oldest = now_ms
            for topic in self.consumed(name, now):
                for queue_id in range(queues_of(topic)):
                    position = max(0, offsets.query(name, topic.topic_name, queue_id) or 0)
                    if position < queues.max_offset(topic.topic_name, queue_id):
                        stored = queues.store_time(topic.topic_name, queue_id, position)
                        oldest = min(oldest, stored) if stored >= 0 else oldest
            found[name] = now_ms - oldest
        return found

    def dead_letters(self) -> dict[str, DeadLetterTotal]:
        """Return the dead letters of each group that has had some, and the time of the newest."""
        progress, found = self._progress, {}
        for name, topic in list(self._topics.table.items()):
            if name.startswith(names.DEAD_LETTER_PREFIX):
                messages = last = 0
                for queue_id in range(queues_of(topic)):
                    end = progress.end(name, queue_id)
                    messages += end - max(0, progress.queues.min_offset(name, queue_id))
                    last = max(last, progress.time_before(name, queue_id, end))
                found[names.group_of(name)] = DeadLetterTotal(messages=messages, last_timestamp=last)
        return found

    def consumed(self, group: str, now: frozenset[str]) -> list[TopicConfig]:
        """Return the topics in which a group has offsets, except abandoned ones, which would show a lag that never
        ends."""
        topics = [self._topics.table.get(name) for name in self._progress.offsets.topics_of(group)]
        return [topic for topic in topics if topic and (not now or topic.topic_name in now)]


def queues_of(topic: TopicConfig) -> int:
    """Return the number of queues, including those that are only writable or readable, which may hold messages."""
    return max(topic.read_queue_nums, topic.write_queue_nums)
