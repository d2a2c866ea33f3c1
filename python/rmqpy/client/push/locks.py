"""Queue locks of a group member: acquired, renewed, released.

Owns the requests to brokers that decide which member may consume a queue in order. A confirmed lock is trusted for
`BELIEVED_S`, half of its lifetime at the broker, so that this member stops before another one starts, even if its
machine was suspended. For its caller's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, TypeVar

from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.reports import outages
from rmqpy.clock import running
from rmqpy.message import MessageQueue
from rmqpy.protocol import declare
from rmqpy.protocol.requests.locks import LockBatch, LockBatchMq, UnlockBatchMq
from rmqpy.protocol.requests.queues import named
from rmqpy.protocol.static_topics import is_pseudo_broker
from rmqpy.remoting.client import Caller

log = logging.getLogger(__name__)

R = TypeVar("R")

#: How long a lock is trusted; brokers keep it for 60 s after the last renewal.
BELIEVED_S: Final = 30.0
RENEW_S: Final = 20.0


class Locks:
    """The queue locks of one member."""

    def __init__(self, cluster: ClusterConnection, caller: Caller, group: str, client_id: str) -> None:
        self._cluster = cluster
        self._caller = caller
        self._group = group
        self._client_id = client_id

    async def take(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, float]:
        """Acquire or renew locks; return the granted queues with the time on the running clock until which they
        hold."""
        return dict(
            pair
            for granted in await asyncio.gather(
                *(self._take(broker, some) for broker, some in (await self._by_broker(queues)).items())
            )
            for pair in granted.items()
        )

    async def give(self, queues: Iterable[MessageQueue]) -> None:
        """Release locks. A broker that cannot be reached releases them a minute after the last renewal."""
        by_broker = await self._by_broker(queues)
        await asyncio.gather(*(self._give(broker, some) for broker, some in by_broker.items()))

    async def _take(self, broker: str, queues: list[MessageQueue]) -> dict[MessageQueue, float]:
        # Counted from before the request, because the broker counts from a later moment.
        until = running() + BELIEVED_S
        reply = await self._ask(broker, queues, LockBatchMq(body=self._batch(queues)))
        return {} if reply is None else {named.queue: until for named in reply.lock_ok_mq_set}

    async def _give(self, broker: str, queues: list[MessageQueue]) -> None:
        await self._ask(broker, queues, UnlockBatchMq(body=self._batch(queues)))

    async def _ask(self, broker: str, queues: list[MessageQueue], ask: declare.Request[R]) -> R | None:
        try:
            route = await self._cluster.routes.subscribe(queues[0].topic, self._caller)
            timeout = self._cluster.config.request_timeout
            return await self._caller.ask(route.master(broker), ask, timeout=timeout)
        except errors.RocketMQError as error:
            outages.warn(log, error, "group %s: %s of %s failed", self._group, ask.code.name, broker)
            return None

    async def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            broker = queue.broker
            if is_pseudo_broker(broker):
                # Without a route, the request itself reports the reason.
                with contextlib.suppress(errors.RocketMQError):
                    route = await self._cluster.routes.subscribe(queue.topic, self._caller)
                    broker = route.home(queue)
            found[broker].append(queue)
        return found

    def _batch(self, queues: list[MessageQueue]) -> LockBatch:
        return LockBatch(
            client_id=self._client_id, consumer_group=self._group, mq_set=[named(queue) for queue in queues]
        )
