"""Lite topics: changes of subscriptions, and reports for administrators. On the event loop."""

from __future__ import annotations

import asyncio
from typing import Final

from rmqpy._native import LiteConsumers, Offsets, Store
from rmqpy.control.clients.lite_subscriptions import LiteSubscriptions
from rmqpy.control.clients.lite_topics import LiteTopics
from rmqpy.control.groups.lite_rules import LiteRules, lite_rules
from rmqpy.control.groups.table import Groups
from rmqpy.control.settings import LiveConfig
from rmqpy.control.tables import attributes
from rmqpy.control.topics.table import Topics
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.lite import (
    BrokerLiteInfo,
    GetBrokerLiteInfo,
    GetLiteClientInfo,
    GetLiteGroupInfo,
    GetLiteTopicInfo,
    GetParentTopicInfo,
    LiteClientInfo,
    LiteGroupInfo,
    LiteLag,
    LiteOffsets,
    LiteSubscriber,
    LiteSubscriptionCtl,
    LiteTopicInfo,
    ParentTopicInfo,
    TriggerLiteDispatch,
)
from rmqpy.protocol.requests.offsets import TopicOffset
from rmqpy.remoting.server import Refused, RequestContext, handles

#: Lite topics in one report.
_LISTED_MAX: Final = 1_000


class LiteHandlers:
    """Change subscriptions to lite topics, and report on them."""

    def __init__(
        self,
        config: LiveConfig,
        topics: Topics,
        groups: Groups,
        store: Store,
        offsets: Offsets,
        consumers: LiteConsumers,
        subscriptions: LiteSubscriptions,
        lite_topics: LiteTopics,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._store = store
        self._offsets = offsets
        self._consumers = consumers
        self._subscriptions = subscriptions
        self._lite_topics = lite_topics

    @handles(LiteSubscriptionCtl)
    def subscribe(self, ask: LiteSubscriptionCtl, context: RequestContext) -> None:
        changes = None if ask.body is None else ask.body.subscription_set
        if not changes:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "the request has no subscriptions")
        for change in changes:
            self._subscriptions.change(change, context.connection)

    @handles(TriggerLiteDispatch)
    def dispatch(self, ask: TriggerLiteDispatch) -> None:
        self._of_group(ask.group)
        self._consumers.dispatch(ask.group, ask.client_id or None)

    @handles(GetBrokerLiteInfo)
    def broker(self, ask: GetBrokerLiteInfo) -> BrokerLiteInfo:
        queues, light = self._store.queue_counts()
        counts = self._consumers.counts()
        return BrokerLiteInfo(
            store_type="default",
            max_lmq_num=self._config.now.store.light_queues_max,
            current_lmq_num=light,
            lite_subscription_count=counts["subscriptions"],
            order_info_count=self._offsets.order_size,
            cq_table_size=queues,
            offset_table_size=self._offsets.size,
            event_map_size=counts["events"],
            topic_meta=self._lite_topics.minutes(),
            group_meta=self._groups_by_parent(),
        )

    @handles(GetParentTopicInfo)
    async def parent(self, ask: GetParentTopicInfo) -> ParentTopicInfo:
        topic = self._topics.existing(ask.topic)
        if not attributes.is_lite_parent(topic.attributes):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"topic {ask.topic} has no lite topics")
        counts = await asyncio.to_thread(self._store.lite_topics)
        return ParentTopicInfo(
            topic=ask.topic,
            ttl=self._lite_topics.minutes().get(ask.topic, -1),
            groups=self._groups_by_parent().get(ask.topic, []),
            lmq_num=self._store.queue_counts()[1],
            lite_topic_count=counts.get(ask.topic, 0),
        )

    @handles(GetLiteTopicInfo)
    def lite_topic(self, ask: GetLiteTopicInfo) -> LiteTopicInfo:
        self._topics.existing(ask.parent_topic)
        queue = self._queue(ask.parent_topic, ask.lite_topic)
        offset = self._limits(queue)
        return LiteTopicInfo(
            parent_topic=ask.parent_topic,
            lite_topic=ask.lite_topic,
            subscriber=[
                LiteSubscriber(client_id=client_id, group=group)
                for client_id, group in self._consumers.subscribers(queue)
            ],
            topic_offset=offset,
            sharding_to_broker=offset.max_offset > 0,
        )

    @handles(GetLiteClientInfo)
    def client(self, ask: GetLiteClientInfo) -> LiteClientInfo:
        found = self._consumers.consumer(ask.group, ask.client_id, max(0, ask.max_count))
        if found is None:
            remark = f"client {ask.client_id} has no subscriptions to lite topics in {ask.group}"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)
        return LiteClientInfo(
            parent_topic=found.parent,
            group=ask.group,
            client_id=ask.client_id,
            last_access_time=found.accessed_ms,
            last_consume_time=found.consumed_ms,
            lite_topic_count=found.subscriptions,
            lite_topic_set=found.queues,
        )

    @handles(GetLiteGroupInfo)
    async def group(self, ask: GetLiteGroupInfo) -> LiteGroupInfo:
        parent = self._of_group(ask.group).parent
        if ask.lite_topic:
            return self._lag_of(ask.group, parent, ask.lite_topic)
        return await asyncio.to_thread(self._lags, ask.group, parent, ask.top_k)

    def _lag_of(self, group: str, parent: str, lite_topic: str) -> LiteGroupInfo:
        queue = self._queue(parent, lite_topic)
        limits, committed = self._limits(queue), self._offsets.query(group, queue, 0)
        next_offset = limits.min_offset if committed is None else committed
        behind = max(0, limits.max_offset - next_offset)
        oldest = self._store.store_time(queue, 0, next_offset) if behind else 0
        return LiteGroupInfo(
            group=group,
            parent_topic=parent,
            lite_topic=lite_topic,
            total_lag_count=behind,
            earliest_unconsumed_timestamp=max(0, oldest),
            lite_topic_offset_wrapper=LiteOffsets(
                broker_offset=limits.max_offset,
                consumer_offset=-1 if committed is None else committed,
                pull_offset=-1 if committed is None else committed,
                last_timestamp=limits.last_update_timestamp,
            ),
        )

    def _lags(self, group: str, parent: str, top: int) -> LiteGroupInfo:
        """Return the lag of a group in all its lite topics. Blocks."""
        behind: list[tuple[int, str, int]] = []
        for queue in self._offsets.topics_of(group):
            committed = self._offsets.query(group, queue, 0) or 0
            parts = names.lite_parts(queue)
            lag = self._store.max_offset(queue, 0) - committed if parts and parts[0] == parent else 0
            if lag > 0:
                behind.append((lag, queue, committed))
        behind.sort(key=lambda each: -each[0])
        lags = []
        for lag, queue, committed in behind[: max(0, min(top, _LISTED_MAX))]:
            oldest = max(0, self._store.store_time(queue, 0, committed))
            lags.append(LiteLag(lite_topic=queue, lag_count=lag, earliest_unconsumed_timestamp=oldest))
        times = [lag.earliest_unconsumed_timestamp for lag in lags if lag.earliest_unconsumed_timestamp]
        return LiteGroupInfo(
            group=group,
            parent_topic=parent,
            total_lag_count=sum(lag for lag, _, _ in behind),
            earliest_unconsumed_timestamp=min(times, default=0),
            lag_count_top_k=lags,
            lag_timestamp_top_k=sorted(lags, key=lambda lag: lag.earliest_unconsumed_timestamp),
        )

    def _limits(self, queue: str) -> TopicOffset:
        end = self._store.max_offset(queue, 0)
        stored_ms = self._store.store_time(queue, 0, end - 1) if end else 0
        return TopicOffset(
            min_offset=self._store.min_offset(queue, 0),
            max_offset=end,
            last_update_timestamp=max(0, stored_ms),
        )

    def _queue(self, parent: str, lite_topic: str) -> str:
        queue = names.lite_queue(parent, lite_topic)
        if queue is None:
            remark = f"{lite_topic[:64]!r} is not the name of a lite topic"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        return queue

    def _of_group(self, group: str) -> LiteRules:
        rules = lite_rules(self._groups.existing(group).attributes)
        if rules is None:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"group {group} consumes no lite topics")
        return rules

    def _groups_by_parent(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for name, group in self._groups.table.items():
            if rules := lite_rules(group.attributes):
                groups.setdefault(rules.parent, []).append(name)
        return groups
