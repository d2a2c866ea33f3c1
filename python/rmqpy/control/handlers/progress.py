"""Consumer progress beyond one topic: by time, over a broker, and copies. On the event loop; a worker reads the
store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from rmqpy.clock import Clock
from rmqpy.control.clients.registry import Consumers
from rmqpy.control.groups.progress import ConsumerProgress, Given
from rmqpy.control.groups.table import Groups
from rmqpy.control.statistics.group_totals import GroupTotals, queues_of
from rmqpy.control.statistics.traffic import Statistics
from rmqpy.control.topics.table import Topics
from rmqpy.protocol.requests.offsets import ConsumeStats
from rmqpy.protocol.requests.progress import (
    BrokerConsumeStats,
    CloneGroupOffset,
    CorrectionOffsets,
    GetBrokerConsumeStats,
    GroupSubscription,
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
    """The progress of groups, and copies of it to other groups."""

    _address: str
    _progress: ConsumerProgress
    _topics: Topics
    _groups: Groups
    _consumers: Consumers
    _totals: GroupTotals
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
        for queue_id in range(queues_of(topic)):
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
        # Apache's broker deletes the offsets of the excluded groups; a query should change nothing.
        without = set((ask.filter_groups or "").split(","))
        groups = [group for group in self._progress.offsets.groups_of(ask.topic) if group not in without]
        topic = self._topics.existing(ask.topic)
        least: dict[int, int] = {}
        for queue_id in range(queues_of(topic)):
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
            for queue_id in range(queues_of(topic)):
                offset = self._progress.offsets.query(ask.src_group, name, queue_id)
                if offset is not None:
                    self._progress.offsets.commit(ask.dest_group, name, queue_id, offset)

    @handles(GetBrokerConsumeStats)
    async def broker_stats(self, ask: GetBrokerConsumeStats) -> BrokerConsumeStats:
        subscribed = self._totals.subscribed()
        if ask.wants_group_totals or ask.wants_dead_letter_totals or ask.ages_of is not None:
            return BrokerConsumeStats(
                broker_addr=self._address,
                consume_stats_list=[],
                total_diff=0,
                total_inflight_diff=0,
                group_totals=await asyncio.to_thread(self._totals.lags, subscribed)
                if ask.wants_group_totals
                else None,
                dead_letter_totals=await asyncio.to_thread(self._totals.dead_letters)
                if ask.wants_dead_letter_totals
                else None,
                group_ages=await asyncio.to_thread(
                    self._totals.ages,
                    {name: subscribed[name] for name in ask.ages_of.split("\n") if name in subscribed},
                    self._clock.wall_ms(),
                )
                if ask.ages_of is not None
                else None,
            )
        rates = self._statistics.group_get_rates()
        return await asyncio.to_thread(self._broker_stats, subscribed, rates, ask.is_order)

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
                for topic in self._totals.consumed(group, now)
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

    def _stats(self, group: str, topic: TopicConfig, rate: float, given: Given) -> ConsumeStats:
        table = self._progress.of(group, topic.topic_name, queues_of(topic), given)
        return ConsumeStats(offset_table=table, consume_tps=rate)

    @handles(QuerySubscriptionByConsumer)
    def subscription(self, ask: QuerySubscriptionByConsumer) -> GroupSubscription:
        data = self._consumers.subscription(ask.group, ask.topic)
        return GroupSubscription(group=ask.group, topic=ask.topic, subscription_data=data)
