"""Queues as they lie on the disk, for those who look for a message that does not come. Runs on the event loop."""

from __future__ import annotations

import asyncio

from rmqpy._native import Store
from rmqpy.control.clients.registry import Consumers
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.messages import QueryConsumeQueue, QueueUnit, QueueUnits
from rmqpy.remoting.server import Refused, handles


class QueueHandlers:
    """Entries of queues."""

    def __init__(self, store: Store, consumers: Consumers) -> None:
        self._store = store
        self._consumers = consumers

    @handles(QueryConsumeQueue)
    async def units(self, ask: QueryConsumeQueue) -> QueueUnits:
        return await asyncio.to_thread(self._units, ask)

    def _units(self, ask: QueryConsumeQueue) -> QueueUnits:
        if ask.queue_id not in dict(self._store.queues()).get(ask.topic, ()):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{ask.queue_id}@{ask.topic} is not exist!")
        found = self._store.units(ask.topic, ask.queue_id, max(0, ask.index), max(0, ask.count))
        group = self._consumers.groups.get(ask.consumer_group or "")
        subscription = group.subscriptions.get(ask.topic) if group else None
        # There are no filters that are worked out beforehand; tools print what stands here.
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
