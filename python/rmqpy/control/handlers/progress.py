"""Consumer progress beyond one topic: in time, over a broker, copied. Runs on the event loop; the store is read in a
worker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from rmqpy.clock import Clock
from rmqpy.control.clients.registry import Consumers
from rmqpy.control.groups.progress import ConsumerProgress
from rmqpy.control.groups.table import Groups
from rmqpy.control.statistics.traffic import Statistics
from rmqpy.control.topics.table import Topics
from rmqpy.protocol import names
from rmqpy.protocol.requests.offsets import ConsumeStats
from rmqpy.protocol.requests.progress import (
    BrokerConsumeStats,
    CloneGroupOffset,
    CorrectionOffsets,
    DeadLetterTotal,
    GetBrokerConsumeStats,
    GroupSubscription,
    GroupTotal,
    QueryConsumeTimeSpan,
    QueryCorrectionOffset,
    QuerySubscriptionByConsumer,
    QueueTimeSpan,
    TimeSpans,
)
from rmqpy.protocol.topics import TopicConfig
from rmqpy.remoting.server import handles


@dataclass(frozen=True, slots=True, eq=False)
class ProgressHandlers:
    """The progress of groups, and its copy from one to another."""

    _address: str
    _progress: ConsumerProgress
    _topics: Topics
    _groups: Groups
    _consumers: Consumers
    _statistics: Statistics
    _clock: Clock

    @handles(QueryConsumeTimeSpan)
    async def time_spans(self, ask: QueryConsumeTimeSpan) -> TimeSpans:
        topic = self._topics.existing(ask.topic)
        return await asyncio.to_thread(self._time_spans, ask.group, topic)

    def _time_spans(self, group: str, topic: TopicConfig) -> TimeSpans:
        name, now = topic.topic_name, self._clock.wall_ms()
        progress, queues = self._progress, self._progress.queues
        spans = []
        for queue_id in range(_queues(topic)):
            position = self._progress.offsets.query(group, name, queue_id) or 0
            stored = queues.store_time(name, queue_id, position)
            oldest = max(0, queues.earliest_store_time(name, queue_id))
            spans.append(
                QueueTimeSpan(
                    message_queue=progress.named(name, queue_id),
                    min_time_stamp=oldest,
                    max_time_stamp=progress.time_before(name, queue_id, progress.end(name, queue_id)),
                    consume_time_stamp=progress.time_before(name, queue_id, position) if position else oldest,
                    delay_time=max(0, now - stored) if stored >= 0 else 0,
                )
            )
        return TimeSpans(consume_time_span_set=spans)

    @handles(QueryCorrectionOffset)
    def correction(self, ask: QueryCorrectionOffset) -> CorrectionOffsets:
        # An original broker deletes the offsets of the groups that are left out; a query should change nothing.
        without = set((ask.filter_groups or "").split(","))
        groups = [group for group in self._progress.offsets.groups_of(ask.topic) if group not in without]
        topic = self._topics.existing(ask.topic)
        least: dict[int, int] = {}
        for queue_id in range(_queues(topic)):
            known = [self._progress.offsets.query(group, ask.topic, queue_id) for group in groups]
            if found := [offset for offset in known if offset is not None]:
                own = self._progress.offsets.query(ask.compare_group or "", ask.topic, queue_id)
                least[queue_id] = min(found) if own is None else min(*found, own)
        return CorrectionOffsets(correction_offsets=least)

    @handles(CloneGroupOffset)
    def clone(self, ask: CloneGroupOffset) -> None:
        for group in (ask.src_group, ask.dest_group):
            self._groups.existing(group)
        for name in [ask.topic] if ask.topic else self._progress.offsets.topics_of(ask.src_group):
            topic = self._topics.existing(name)
            for queue_id in range(_queues(topic)):
                offset = self._progress.offsets.query(ask.src_group, name, queue_id)
                if offset is not None:
                    self._progress.offsets.commit(ask.dest_group, name, queue_id, offset)

    @handles(GetBrokerConsumeStats)
    async def broker_stats(self, ask: GetBrokerConsumeStats) -> BrokerConsumeStats:
        rates = self._statistics.group_get_rates()
        online = self._consumers.groups
        subscribed = {
            name: frozenset(online[name].subscriptions) if name in online else frozenset()
            for name in self._groups.table
        }
        if ask.wants_group_totals or ask.wants_dead_letter_totals:
            return BrokerConsumeStats(
                broker_addr=self._address,
                consume_stats_list=[],
                total_diff=0,
                total_inflight_diff=0,
                group_totals=await asyncio.to_thread(self._group_totals, subscribed)
                if ask.wants_group_totals
                else None,
                dead_letter_totals=await asyncio.to_thread(self._dead_letter_totals)
                if ask.wants_dead_letter_totals
                else None,
            )
        return await asyncio.to_thread(self._broker_stats, subscribed, rates, ask.is_order)

    def _group_totals(self, subscribed: Mapping[str, frozenset[str]]) -> dict[str, GroupTotal]:
        offsets, queues, found = self._progress.offsets, self._progress.queues, {}
        groups = self._groups.table
        for name, now in subscribed.items():
            if (group := groups.get(name)) is None:
                continue
            lag, topics = 0, []
            for topic in self._consumed(name, now):
                topic_name = topic.topic_name
                if not names.is_derived(topic_name):
                    topics.append(topic_name)
                for queue_id in range(_queues(topic)):
                    position = offsets.query(name, topic_name, queue_id) or 0
                    lag += max(0, queues.max_offset(topic_name, queue_id) - max(0, position))
            found[name] = GroupTotal(
                lag=lag,
                topics=topics,
                retry_max=group.retry_max_times,
                consume_enable=group.consume_enable,
            )
        return found

    def _dead_letter_totals(self) -> dict[str, DeadLetterTotal]:
        progress, found = self._progress, {}
        for name, topic in self._topics.table.items():
            if name.startswith(names.DEAD_LETTER_PREFIX):
                messages = last = 0
                for queue_id in range(_queues(topic)):
                    end = progress.end(name, queue_id)
                    messages += end - max(0, progress.queues.min_offset(name, queue_id))
                    last = max(last, progress.time_before(name, queue_id, end))
                found[names.group_of(name)] = DeadLetterTotal(messages=messages, last_timestamp=last)
        return found

    def _consumed(self, group: str, now: frozenset[str]) -> list[TopicConfig]:
        """Topics that a group has offsets in; one that the members no longer subscribe to would show a lag that never
        ends."""
        topics = [self._topics.table.get(name) for name in self._progress.offsets.topics_of(group)]
        return [topic for topic in topics if topic and (not now or topic.topic_name in now)]

    def _broker_stats(
        self,
        subscribed: Mapping[str, frozenset[str]],
        rates: Mapping[tuple[str, str], float],
        is_order: bool,
    ) -> BrokerConsumeStats:
        found: list[dict[str, list[ConsumeStats]]] = []
        behind = in_flight = 0
        given = self._progress.given()
        for group, now in subscribed.items():
            stats = [
                self._stats(group, topic, rates.get((group, topic.topic_name), 0.0), given)
                for topic in self._consumed(group, now)
                if topic.order or not is_order
            ]
            if stats:
                found.append({group: stats})
            queues = [queue for table in stats for queue in table.offset_table.values()]
            behind += sum(queue.broker_offset - queue.consumer_offset for queue in queues)
            in_flight += sum(queue.pull_offset - queue.consumer_offset for queue in queues)
        return BrokerConsumeStats(
            broker_addr=self._address,
            consume_stats_list=found,
            total_diff=behind,
            total_inflight_diff=in_flight,
        )

    def _stats(
        self, group: str, topic: TopicConfig, rate: float, given: Mapping[tuple[str, str, int], int]
    ) -> ConsumeStats:
        table = self._progress.of(group, topic.topic_name, _queues(topic), given)
        return ConsumeStats(offset_table=table, consume_tps=rate)

    @handles(QuerySubscriptionByConsumer)
    def subscription(self, ask: QuerySubscriptionByConsumer) -> GroupSubscription:
        data = self._consumers.subscription(ask.group, ask.topic)
        return GroupSubscription(group=ask.group, topic=ask.topic, subscription_data=data)


def _queues(topic: TopicConfig) -> int:
    """The number of its queues: those that producers, or consumers, do not reach any more may hold messages."""
    return max(topic.read_queue_nums, topic.write_queue_nums)
