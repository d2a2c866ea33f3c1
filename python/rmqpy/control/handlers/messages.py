"""Single messages and queue entries, for tools. On the event loop; a worker reads the store."""

from __future__ import annotations

import asyncio
from typing import Final

from rmqpy._native import Store
from rmqpy.control.access.records import RecordRights
from rmqpy.control.clients.registry import Consumers
from rmqpy.protocol.access import Action
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.messages import (
    QueriedMessages,
    QueryConsumeQueue,
    QueryMessage,
    QueueUnit,
    QueueUnits,
    ViewMessageById,
)
from rmqpy.remoting.server import Refused, RequestContext, handles

_BY_TAG: Final = "T"
#: The prefix of a tag in the index, which contains hashes of `topic#key` and `topic#T#tag`.
_TAG_PREFIX: Final = "T#"
#: The most hits of a query by unique key, because retries share the key of their message.
_UNIQUE_HITS_MAX: Final = 32
_HITS_MAX: Final = 64
#: The largest reply, which leaves room for a header and one more message in a frame.
_ANSWER_BYTES_MAX: Final = 8 << 20


class MessageHandlers:
    """Messages by key and by position, and the entries of a queue."""

    def __init__(self, store: Store, consumers: Consumers, rights: RecordRights) -> None:
        self._store = store
        self._consumers = consumers
        self._rights = rights

    @handles(QueryMessage)
    async def query(self, ask: QueryMessage) -> QueriedMessages:
        key = _TAG_PREFIX + ask.key if ask.index_type == _BY_TAG else ask.key
        maximum = _UNIQUE_HITS_MAX if ask.is_unique_key else min(max(ask.max_num, 0), _HITS_MAX)
        records: list[bytes] = []
        if maximum:
            records, timestamp, position = await asyncio.to_thread(
                self._store.query, ask.topic, key, maximum, ask.begin_timestamp, ask.end_timestamp
            )
        if not records:
            remark = "can not find message, maybe time range not correct"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)
        body = bytearray()
        for record in records:
            if body and len(body) + len(record) > _ANSWER_BYTES_MAX:
                break
            body += record
        return QueriedMessages(
            index_last_update_timestamp=timestamp, index_last_update_phyoffset=position, body=bytes(body)
        )

    @handles(ViewMessageById)
    async def view(self, ask: ViewMessageById, context: RequestContext) -> bytes:
        record = None
        if ask.offset >= 0:
            record = await asyncio.to_thread(self._store.message, ask.offset)
        if record is None:
            remark = f"can not find message by the offset, {ask.offset}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        self._rights.check(record, Action.GET, ask.code, context)
        return record

    @handles(QueryConsumeQueue)
    async def units(self, ask: QueryConsumeQueue) -> QueueUnits:
        return await asyncio.to_thread(self._units, ask)

    def _units(self, ask: QueryConsumeQueue) -> QueueUnits:
        if ask.queue_id not in dict(self._store.queues()).get(ask.topic, ()):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{ask.queue_id}@{ask.topic} is not exist!")
        found = self._store.units(ask.topic, ask.queue_id, max(0, ask.index), max(0, ask.count))
        subscription = self._consumers.subscription(ask.consumer_group or "", ask.topic)
        # No precomputed filters exist; tools print this value.
        filter_data = "null" if subscription else f"{ask.consumer_group}@{ask.topic} is not online!"
        return QueueUnits(
            subscription_data=subscription,
            filter_data=filter_data if ask.consumer_group else None,
            queue_data=[
                QueueUnit(physic_offset=physical, physic_size=size, tags_code=code)
                for physical, size, code in found
            ],
            max_queue_index=self._store.max_offset(ask.topic, ask.queue_id),
            min_queue_index=self._store.min_offset(ask.topic, ask.queue_id),
        )
