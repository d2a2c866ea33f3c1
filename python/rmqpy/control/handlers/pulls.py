"""Pulls that the native module forwards: of older segments at other brokers, and of messages that left the disk. On the
event loop; the tiered storage is read in a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rmqpy._native import RecordFilter, Store
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.clients.registry import Consumers
from rmqpy.control.handlers.logical_queues import LogicalQueueHandlers
from rmqpy.control.tiered.reading import Page
from rmqpy.control.tiered.storage import TieredStorage
from rmqpy.errors import StoreError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.pulls import LitePullMessage, Pulled, PullMessage
from rmqpy.remoting.server import Refused, handles

#: Pulls that read the tiered storage at a time; further ones wait for their turn.
READS_MAX: Final = 4
#: The bit of a pull that carries its subscription.
_SUBSCRIPTION: Final = 4
#: The default size of a reply.
_BYTES_DEFAULT: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class PullLimits:
    """The limits of a reply."""

    messages: int
    bytes: int
    is_sql_strict: bool


def pull_limits(config: BrokerConfig) -> PullLimits:
    """Return the limits that a broker is configured with."""
    return PullLimits(config.pull_messages_max, config.pull_bytes_max, config.is_sql_strict)


class PullHandlers:
    """Pulls of messages that are not on this broker's disk."""

    def __init__(
        self,
        logical: LogicalQueueHandlers,
        tier: TieredStorage | None,
        store: Store,
        consumers: Consumers,
        limits: Callable[[], PullLimits],
    ) -> None:
        self._logical = logical
        self._tier = tier
        self._store = store
        self._consumers = consumers
        self._limits = limits
        self._turns = asyncio.Semaphore(READS_MAX)

    @handles(PullMessage)
    async def pull(self, ask: PullMessage) -> Pulled:
        return await self._pull(ask)

    @handles(LitePullMessage)
    async def lite_pull(self, ask: LitePullMessage) -> Pulled:
        return await self._pull(ask)

    async def _pull(self, ask: PullMessage) -> Pulled:
        if self._tier is None or self._logical.is_logical(ask):
            return await self._logical.pull(ask)
        accepts = self._filter(ask)
        limits = self._limits()
        # Messages that leave the disk meanwhile are left to the next pull.
        local = self._store.min_offset(ask.topic, ask.queue_id)
        try:
            async with self._turns:
                page, oldest = await asyncio.to_thread(self._read, self._tier, ask, local, limits, accepts)
        except StoreError as error:
            # The consumer asks again later, and skips nothing.
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return self._answer(ask, page, oldest, local)

    @staticmethod
    def _read(
        tier: TieredStorage, ask: PullMessage, local: int, limits: PullLimits, accepts: RecordFilter | None
    ) -> tuple[Page | None, int | None]:
        """Return messages below `local`, and the queue's first offset in the tiered storage. Blocks."""
        page = tier.reader.read(
            ask.topic,
            ask.queue_id,
            ask.queue_offset,
            before=local,
            count=max(1, min(ask.max_msg_nums, limits.messages)),
            bytes_max=min(ask.max_msg_bytes or _BYTES_DEFAULT, limits.bytes),
            accepts=accepts,
        )
        return page, tier.min_offset(ask.topic, ask.queue_id)

    def _answer(self, ask: PullMessage, page: Page | None, oldest: int | None, local: int) -> Pulled:
        pulled = Pulled(
            suggest_which_broker_id=0,
            next_begin_offset=local if page is None else page.next,
            min_offset=local if oldest is None else min(local, oldest),
            max_offset=self._store.max_offset(ask.topic, ask.queue_id),
            body=b"" if page is None else page.records,
        )
        if page is None:
            raise Refused(ResponseCode.PULL_OFFSET_MOVED, "", pulled)
        if not page.found:
            raise Refused(ResponseCode.PULL_RETRY_IMMEDIATELY, "", pulled)
        return pulled

    def _filter(self, ask: PullMessage) -> RecordFilter | None:
        """The filter of a pull, or of its group's subscription; `None` for all messages."""
        expression, kind = ask.subscription, ask.expression_type
        if not ask.sys_flag & _SUBSCRIPTION:
            group = self._consumers.groups.get(ask.consumer_group)
            known = None if group is None else group.subscriptions.get(ask.topic)
            if known is None:
                remark = f"the consumer's group {ask.consumer_group} has no subscription to {ask.topic}"
                raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
            expression, kind = known.sub_string, known.expression_type
        if kind in (None, "", "TAG") and expression in (None, "", "*"):
            return None
        try:
            return RecordFilter(expression or "*", kind or "TAG", strict=self._limits().is_sql_strict)
        except ValueError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
