"""Logical queues: queries about queues of static topics, at the brokers of their segments.

Owns the addresses of those brokers, for some seconds each. A query that names a queue of this broker itself, with
`lo=false`, is not for this module. Threads: the event loop's; the store is read in a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from rmqpy._native import Call, Store
from rmqpy.control.topics.static_topics import StaticTopics
from rmqpy.errors import ConnectError, RequestTimeout, RocketMQError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import Request
from rmqpy.protocol.requests.offsets import (
    BoundaryType,
    GetEarliestMsgStoreTime,
    GetMaxOffset,
    GetMinOffset,
    SearchOffsetByTimestamp,
)
from rmqpy.protocol.requests.routes import MASTER_ID, GetRoute
from rmqpy.protocol.static_topics import Segment, TopicMapping, logical
from rmqpy.remoting.client import Peer
from rmqpy.remoting.server import Refused

R = TypeVar("R")

#: Topics whose routes are kept, and for how long.
ROUTES_MAX: Final = 4_096
ROUTE_SECONDS: Final = 5.0
#: The timeout of a request to another broker, as in Apache's broker.
FORWARD_SECONDS: Final = 3.0


class LogicalQueues:
    """The logical queues that this broker leads."""

    def __init__(
        self,
        broker: str,
        static: StaticTopics,
        store: Store,
        name_servers: Sequence[Peer],
        peer: Callable[[str], Peer],
        elapsed: Callable[[], float],
    ) -> None:
        """`elapsed` returns seconds of a monotonic clock."""
        self._broker = broker
        self._static = static
        self._store = store
        self._name_servers = name_servers
        self._peer = peer
        self._elapsed = elapsed
        self._masters: dict[str, tuple[float, Mapping[str, str]]] = {}

    def is_own(self, segment: Segment) -> bool:
        """Return whether a segment is in a queue of this broker."""
        return segment.bname == self._broker

    def is_logical(self, topic: str, lo: bool | None) -> bool:
        """Return whether a request for a topic names a logical queue."""
        return lo is not False and topic in self._static.table

    def leads(self, topic: str, queue_id: int) -> bool:
        """Return whether this broker leads this logical queue."""
        mapping = self._static.table.get(topic)
        return mapping is not None and self._is_led(mapping, queue_id)

    def _is_led(self, mapping: TopicMapping, queue_id: int) -> bool:
        segments = mapping.hosted_queues.get(queue_id, [])
        return bool(segments) and self.is_own(segments[-1])

    def led(self, topic: str, queue_id: int, lo: bool | None) -> list[Segment] | None:
        """Return the decided segments of a logical queue that this broker leads, oldest first; `None` if the request
        names a queue of this broker itself. Raises `Refused`."""
        mapping = self._static.table.get(topic)
        if mapping is None or not self.is_logical(topic, lo):
            return None
        segments = [segment for segment in mapping.hosted_queues.get(queue_id, ()) if segment.is_decided]
        if segments and self._is_led(mapping, queue_id):
            return segments
        remark = f"{topic}-{queue_id} does not exist in request process of current broker {self._broker}"
        raise Refused(ResponseCode.NOT_LEADER_FOR_QUEUE, remark)

    async def ask(self, topic: str, segment: Segment, ask: Request[R]) -> R:
        """Query the broker of a segment. Raises `Refused`, and the refusals of that broker."""
        master = await self._master(topic, segment.bname)
        try:
            return await master.call(ask, timeout=FORWARD_SECONDS)
        except (ConnectError, RequestTimeout) as error:
            raise self._unreachable(topic, segment.bname, error) from None

    async def forward(self, topic: str, segment: Segment, ask: Request[Any]) -> Call:
        """Likewise; return the reply whatever its code."""
        master = await self._master(topic, segment.bname)
        try:
            return await master.forward(ask, timeout=FORWARD_SECONDS)
        except (ConnectError, RequestTimeout) as error:
            raise self._unreachable(topic, segment.bname, error) from None

    # ---- limits of a logical queue ----

    async def max_offset(self, topic: str, segments: Sequence[Segment]) -> int:
        """Return the offset after the last readable message."""
        newest = segments[-1]
        return logical(newest, await self._local_max(topic, newest))

    async def min_offset(self, topic: str, segments: Sequence[Segment]) -> int:
        """Return the offset of the first message."""
        oldest, queue = segments[0], segments[0].queue_id
        if self.is_own(oldest):
            return logical(oldest, max(0, self._store.min_offset(topic, queue)))
        ask = GetMinOffset(topic=topic, queue_id=queue, lo=False, bname=oldest.bname)
        return logical(oldest, (await self.ask(topic, oldest, ask)).offset)

    async def offset_at(
        self, topic: str, segments: Sequence[Segment], timestamp: int, boundary: BoundaryType | None
    ) -> int:
        """Return the offset of the first message stored at or after a time; the end without one."""
        for segment in segments if timestamp >= 0 else ():
            if self.is_own(segment):
                found = await asyncio.to_thread(
                    self._store.offset_by_time,
                    topic,
                    segment.queue_id,
                    timestamp,
                    upper=boundary is BoundaryType.UPPER,
                )
            else:
                ask = SearchOffsetByTimestamp(
                    topic=topic,
                    queue_id=segment.queue_id,
                    timestamp=timestamp,
                    boundary_type=boundary,
                    lo=False,
                    bname=segment.bname,
                )
                found = (await self.ask(topic, segment, ask)).offset
            if found < await self._local_max(topic, segment):
                return logical(segment, found)
        return await self.max_offset(topic, segments)

    async def earliest_time(self, topic: str, segments: Sequence[Segment]) -> int:
        """Return the store time of the oldest message in ms; -1 without one."""
        oldest, queue = segments[0], segments[0].queue_id
        if self.is_own(oldest):
            return await asyncio.to_thread(self._store.earliest_store_time, topic, queue)
        ask = GetEarliestMsgStoreTime(topic=topic, queue_id=queue, lo=False, bname=oldest.bname)
        return (await self.ask(topic, oldest, ask)).timestamp

    async def _local_max(self, topic: str, segment: Segment) -> int:
        if self.is_own(segment):
            return max(0, self._store.max_offset(topic, segment.queue_id))
        ask = GetMaxOffset(topic=topic, queue_id=segment.queue_id, lo=False, bname=segment.bname)
        return (await self.ask(topic, segment, ask)).offset

    # ---- other brokers ----

    async def _master(self, topic: str, broker: str) -> Peer:
        """Return the master of another broker of the topic. Raises `Refused` if no name server knows it."""
        known = self._masters.get(topic)
        if known is None or self._elapsed() >= known[0] or broker not in known[1]:
            known = await self._look_up(topic)
        if known is None or not (address := known[1].get(broker)):
            remark = f"no name server knows a master of broker {broker} with topic {topic}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return self._peer(address)

    async def _look_up(self, topic: str) -> tuple[float, Mapping[str, str]] | None:
        for server in self._name_servers:
            ask = GetRoute(topic=topic, accept_standard_json_only=True)
            try:
                route = (await server.call(ask, timeout=FORWARD_SECONDS)).body
            except (RocketMQError, OSError):
                continue
            masters = {
                broker.broker_name: broker.broker_addrs.get(MASTER_ID, "") for broker in route.broker_datas
            }
            if len(self._masters) >= ROUTES_MAX:
                self._masters.clear()
            found = self._masters[topic] = (self._elapsed() + ROUTE_SECONDS, masters)
            return found
        return self._masters.get(topic)

    def _unreachable(self, topic: str, broker: str, error: RocketMQError) -> Refused:
        self._masters.pop(topic, None)
        return Refused(ResponseCode.SYSTEM_ERROR, f"broker {broker} does not answer: {error}")
