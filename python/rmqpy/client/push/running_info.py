"""Running info of a push consumer, and messages handled at an administrator's request.

Owns nothing; reads the consumer's parts. On the event loop of the consumer.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from rmqpy.client.group.client_queries import member_properties
from rmqpy.client.group.subscription import Subscriptions
from rmqpy.client.push.handlers import Handlers
from rmqpy.client.push.locks import BELIEVED_S
from rmqpy.client.push.options import PushOptions
from rmqpy.client.push.process_queue import ProcessQueue
from rmqpy.client.push.worker_pool import WorkerPool
from rmqpy.clock import running
from rmqpy.message import MessageQueue, ReceivedMessage
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.clients import ConsumeType
from rmqpy.protocol.requests.introspection import (
    ConsumerRunningInfo,
    DirectConsumption,
    DirectResult,
    ProcessQueueInfo,
)
from rmqpy.protocol.requests.queues import named
from rmqpy.remoting.server import Refused


class PushRunningInfo:
    """The running info of one push consumer."""

    def __init__(
        self,
        options: PushOptions,
        pool: WorkerPool[Any],
        subscriptions: Subscriptions,
        handlers: Handlers,
        process_queues: Callable[[], list[ProcessQueue]],
    ) -> None:
        self._options = options
        self._pool = pool
        self._subscriptions = subscriptions
        self._handlers = handlers
        self._process_queues = process_queues
        self._began_ms = round(time.time() * 1000)

    def positions(self) -> Mapping[MessageQueue, int]:
        return {one.queue: one.progress for one in self._process_queues()}

    def running_info(self) -> ConsumerRunningInfo:
        options = self._options
        return ConsumerRunningInfo(
            properties=member_properties(
                options.config.namesrv,
                ConsumeType.CONSUME_PASSIVELY,
                began_ms=self._began_ms,
                is_ordered=options.ordered,
                workers=self._pool.size,
            ),
            subscription_set=[one.data() for one in self._subscriptions.table.values()],
            mq_table={
                named(one.queue): _state(one, is_locking=options.is_locking) for one in self._process_queues()
            },
            status_table=self._handlers.statistics.rates(),
        )

    async def handle(self, message: ReceivedMessage) -> DirectConsumption:
        topic = message.topic
        if topic not in self._handlers.topics:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the consumer has no handler for topic {topic}")
        began_at, remark = time.monotonic(), None
        try:
            outcome = await self._pool.out_of_turn(self._handlers.try_out(message))
            result = DirectResult.CR_LATER if outcome.failed else DirectResult.CR_SUCCESS
        except (Exception, SystemExit) as error:
            result, remark = DirectResult.CR_THROW_EXCEPTION, "".join(traceback.format_exception(error))
        return DirectConsumption(
            consume_result=result,
            order=self._options.ordered,
            spent_time_mills=round(1000 * (time.monotonic() - began_at)),
            remark=remark,
        )


def _state(process_queue: ProcessQueue, *, is_locking: bool) -> ProcessQueueInfo:
    held = process_queue.held()
    # Converts the monotonic clock to the wall clock.
    since_epoch_s = time.time() - time.monotonic()
    locked_s = time.time() - running() + process_queue.locked_until - BELIEVED_S
    return ProcessQueueInfo(
        commit_offset=held.progress,
        cached_msg_min_offset=held.oldest,
        cached_msg_max_offset=held.newest,
        cached_msg_count=held.messages,
        cached_msg_size_in_mib=held.bytes >> 20,
        locked=is_locking and process_queue.is_locked,
        last_lock_timestamp=round(1000 * locked_s) if is_locking else 0,
        droped=process_queue.is_dropped,
        last_pull_timestamp=round(1000 * process_queue.pulled_at),
        last_consume_timestamp=round(1000 * (since_epoch_s + process_queue.begun_at))
        if process_queue.begun_at
        else 0,
    )
