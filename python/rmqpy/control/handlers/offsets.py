"""Offsets: limits of queues, progress of groups, resets. On the event loop; a worker reads the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rmqpy._native import Server
from rmqpy.control.clients.registry import Consumers
from rmqpy.control.groups.progress import ConsumerProgress
from rmqpy.control.groups.table import Groups
from rmqpy.control.settings import LiveConfig
from rmqpy.control.statistics.traffic import Statistics
from rmqpy.control.topics.logical_queues import LogicalQueues
from rmqpy.control.topics.table import Topics
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.introspection import ResetConsumerClientOffset
from rmqpy.protocol.requests.offsets import (
    BoundaryType,
    ConsumeOffset,
    ConsumeStats,
    GetConsumeStats,
    GetEarliestMsgStoreTime,
    GetMaxOffset,
    GetMinOffset,
    GetTopicStatsInfo,
    GroupNames,
    GroupTopics,
    InvokeBrokerToResetOffset,
    OffsetReply,
    QueryTopicConsumeByWho,
    QueryTopicsByConsumer,
    ResetOffsets,
    SearchOffsetByTimestamp,
    StoreTimeReply,
    TopicOffset,
    TopicStats,
)
from rmqpy.protocol.requests.queues import MessageQueue
from rmqpy.protocol.topics import TopicConfig
from rmqpy.remoting.server import Refused, handles


@dataclass(frozen=True, slots=True, eq=False)
class OffsetHandlers:
    """The limits of queues, and the progress of groups in them."""

    _config: LiveConfig
    _server: Server
    _address: str
    _progress: ConsumerProgress
    _logical: LogicalQueues
    _topics: Topics
    _groups: Groups
    _consumers: Consumers
    _statistics: Statistics
    #: Records an event and its group.
    _note: Callable[[str, str], None]

    # ---- queues ----

    @handles(GetMaxOffset)
    async def max_offset(self, ask: GetMaxOffset) -> OffsetReply:
        if (segments := self._logical.led(ask.topic, ask.queue_id, ask.lo)) is not None:
            return OffsetReply(offset=await self._logical.max_offset(ask.topic, segments))
        return OffsetReply(offset=self._progress.queues.max_offset(ask.topic, _queue_id(ask.queue_id)))

    @handles(GetMinOffset)
    async def min_offset(self, ask: GetMinOffset) -> OffsetReply:
        if (segments := self._logical.led(ask.topic, ask.queue_id, ask.lo)) is not None:
            return OffsetReply(offset=await self._logical.min_offset(ask.topic, segments))
        # The tiered storage may have older ones.
        read = self._progress.queues.min_offset
        return OffsetReply(offset=await asyncio.to_thread(read, ask.topic, _queue_id(ask.queue_id)))

    @handles(SearchOffsetByTimestamp)
    async def offset_by_time(self, ask: SearchOffsetByTimestamp) -> OffsetReply:
        if (segments := self._logical.led(ask.topic, ask.queue_id, ask.lo)) is not None:
            found = self._logical.offset_at(ask.topic, segments, ask.timestamp, ask.boundary_type)
            return OffsetReply(offset=await found)
        is_upper = ask.boundary_type is BoundaryType.UPPER
        return OffsetReply(
            offset=await asyncio.to_thread(
                self._offset_at, ask.topic, _queue_id(ask.queue_id), ask.timestamp, upper=is_upper
            )
        )

    @handles(GetEarliestMsgStoreTime)
    async def earliest_time(self, ask: GetEarliestMsgStoreTime) -> StoreTimeReply:
        if (segments := self._logical.led(ask.topic, ask.queue_id, ask.lo)) is not None:
            return StoreTimeReply(timestamp=await self._logical.earliest_time(ask.topic, segments))
        read = self._progress.queues.earliest_store_time
        return StoreTimeReply(timestamp=await asyncio.to_thread(read, ask.topic, _queue_id(ask.queue_id)))

    @handles(GetTopicStatsInfo)
    async def topic_stats(self, ask: GetTopicStatsInfo) -> TopicStats:
        topic = self._topics.existing(ask.topic)
        count = max(topic.read_queue_nums, topic.write_queue_nums)
        tps = self._statistics.topic_put_tps(ask.topic)
        return await asyncio.to_thread(self._topic_stats, ask.topic, count, tps)

    def _topic_stats(self, topic: str, count: int, tps: float) -> TopicStats:
        table = {}
        for queue_id in range(count):
            end = self._progress.end(topic, queue_id)
            table[self._progress.named(topic, queue_id)] = TopicOffset(
                min_offset=max(0, self._progress.queues.min_offset(topic, queue_id)),
                max_offset=end,
                last_update_timestamp=self._progress.time_before(topic, queue_id, end),
            )
        return TopicStats(offset_table=table, topic_put_tps=tps)

    # ---- groups ----

    @handles(GetConsumeStats)
    async def consume_stats(self, ask: GetConsumeStats) -> ConsumeStats:
        group = ask.consumer_group
        wanted = [ask.topic] if ask.topic else [name for name in (ask.topic_list or "").split(";") if name]
        online = self._consumers.groups.get(group)
        topics = [
            topic
            for name in wanted or sorted(self._progress.offsets.topics_of(group))
            # An abandoned topic would show a lag that never ends.
            if (topic := self._topics.get(name))
            and (online is None or not online.subscriptions or name in online.subscriptions)
        ]
        tps = sum(self._statistics.group_get_tps(group, topic.topic_name) for topic in topics)
        return await asyncio.to_thread(self._consume_stats, group, topics, tps)

    def _consume_stats(self, group: str, topics: Iterable[TopicConfig], tps: float) -> ConsumeStats:
        table: dict[MessageQueue, ConsumeOffset] = {}
        given = self._progress.given()
        for topic in topics:
            queues = max(topic.read_queue_nums, topic.write_queue_nums)
            table |= self._progress.of(group, topic.topic_name, queues, given)
        return ConsumeStats(offset_table=table, consume_tps=tps)

    @handles(QueryTopicConsumeByWho)
    def groups_of(self, ask: QueryTopicConsumeByWho) -> GroupNames:
        found = {*self._consumers.subscribers(ask.topic), *self._progress.offsets.groups_of(ask.topic)}
        return GroupNames(group_list=sorted(found))

    @handles(QueryTopicsByConsumer)
    def topics_of(self, ask: QueryTopicsByConsumer) -> GroupTopics:
        topics = sorted(self._progress.offsets.topics_of(ask.group))
        return GroupTopics(topic_list=topics, broker_addr=self._address)

    @handles(InvokeBrokerToResetOffset)
    async def reset(self, ask: InvokeBrokerToResetOffset) -> ResetOffsets:
        topic = self._topics.existing(ask.topic)
        self._groups.existing(ask.group)
        if not self._config.now.resets_offsets_itself:
            return await self._reset_at_members(ask, topic)
        if ask.queue_id >= 0:
            targets = {_queue_id(ask.queue_id): await self._target(ask, ask.queue_id)}
        else:
            targets = {
                queue_id: await asyncio.to_thread(self._offset_at, ask.topic, queue_id, ask.timestamp)
                for queue_id in range(topic.read_queue_nums)
            }
        for queue_id, offset in targets.items():
            self._progress.offsets.reset(ask.group, ask.topic, queue_id, offset)
        self._note("offsets reset", ask.group)
        table = {self._progress.named(ask.topic, queue_id): offset for queue_id, offset in targets.items()}
        return ResetOffsets(offset_table=table)

    async def _reset_at_members(self, ask: InvokeBrokerToResetOffset, topic: TopicConfig) -> ResetOffsets:
        """Send new offsets to all members, as brokers before 5.2 did; forward only if forced."""
        online = self._consumers.groups.get(ask.group)
        if online is None:
            remark = f"Consumer not online, so can not reset offset, Group: {ask.group}"
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        targets = {}
        for queue_id in range(topic.write_queue_nums):
            current = self._progress.offsets.query(ask.group, ask.topic, queue_id)
            if current is None:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"The consumer group <{ask.group}> not exist")
            wanted = max(0, await asyncio.to_thread(self._offset_at, ask.topic, queue_id, ask.timestamp))
            queue = self._progress.named(ask.topic, queue_id)
            targets[queue] = wanted if ask.is_force else min(wanted, current)
        notification = ResetConsumerClientOffset(
            topic=ask.topic,
            group=ask.group,
            timestamp=ask.timestamp,
            is_force=bool(ask.is_force),
            body=ResetOffsets(offset_table=targets),
        )
        sent = encode(notification)
        for connection in online.members:
            self._server.push(connection, notification.code, sent.ext or {}, sent.body or b"")
        return ResetOffsets(offset_table=targets)

    async def _target(self, ask: InvokeBrokerToResetOffset, queue_id: int) -> int:
        if ask.offset is None or ask.offset == -1:
            return await asyncio.to_thread(self._offset_at, ask.topic, queue_id, ask.timestamp)
        low = await asyncio.to_thread(self._progress.queues.min_offset, ask.topic, queue_id)
        high = self._progress.queues.max_offset(ask.topic, queue_id) + 1
        if not (low <= ask.offset <= high):
            remark = f"Target offset {ask.offset} not in consume queue range [{low}-{high}]"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return ask.offset

    # ---- parts ----

    def _offset_at(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        if timestamp < 0:
            return self._progress.queues.max_offset(topic, queue_id)
        return self._progress.queues.offset_by_time(topic, queue_id, timestamp, upper=upper)


def _queue_id(value: int) -> int:
    if not (0 <= value < 1 << 31):
        raise Refused(ResponseCode.INVALID_PARAMETER, f"queueId {value} is out of range")
    return value
