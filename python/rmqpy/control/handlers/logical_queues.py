"""Requests for logical queues that need another broker: the native module forwards them. On the event loop."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rmqpy._native import PULL_SUSPEND, Offsets
from rmqpy.control.topics.logical_queues import LogicalQueues
from rmqpy.errors import BrokerError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import decode
from rmqpy.protocol.requests.offsets import OffsetReply, QueryConsumerOffset, UpdateConsumerOffset
from rmqpy.protocol.requests.pulls import Pulled, PullMessage
from rmqpy.protocol.static_topics import Segment, local, logical, segment_at
from rmqpy.remoting.server import Refused, handles

#: How long an empty answer of another broker is held, so that its consumer does not ask too often: no message can
#: arrive there, but the next segment is decided within seconds.
EMPTY_SECONDS: Final = 0.2
#: Bits of a pull for the broker that the consumer asked.
_COMMIT: Final = 1
_PULL_CODES: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class LogicalQueueHandlers:
    """Pulls and progress in segments of other brokers."""

    _queues: LogicalQueues
    _offsets: Offsets

    def is_logical(self, ask: PullMessage) -> bool:
        """Return whether a pull names a logical queue."""
        return self._queues.is_logical(ask.topic, ask.lo)

    async def pull(self, ask: PullMessage) -> Pulled:
        """Read an older segment at another broker. Raises `Refused`."""
        segments = self._segments(ask)
        index, segment = self._elsewhere(segments, ask.queue_offset)
        offset = local(segment, ask.queue_offset)
        forwarded = dataclasses.replace(
            ask,
            queue_id=segment.queue_id,
            queue_offset=offset,
            sys_flag=ask.sys_flag & ~(_COMMIT | PULL_SUSPEND),
            commit_offset=0,
            suspend_timeout_millis=0,
            bname=segment.bname,
            lo=False,
        )
        call = await self._queues.forward(ask.topic, segment, forwarded)
        if call.code not in _PULL_CODES:
            raise Refused(ResponseCode(call.code), call.remark or "")
        answer = _continued(segments, index, offset, call.code, decode(Pulled, call.ext, call.body))
        if answer.code is ResponseCode.SUCCESS:
            return answer.pulled
        if answer.code is ResponseCode.PULL_NOT_FOUND and ask.sys_flag & PULL_SUSPEND:
            await asyncio.sleep(min(EMPTY_SECONDS, max(0, ask.suspend_timeout_millis) / 1_000))
        raise Refused(answer.code, "", answer.pulled)

    @handles(QueryConsumerOffset)
    async def progress(self, ask: QueryConsumerOffset) -> OffsetReply:
        group, topic = ask.consumer_group, ask.topic
        for segment in reversed(self._segments(ask)):
            if self._queues.is_own(segment):
                found = self._offsets.query(group, topic, segment.queue_id)
            else:
                found = await self._progress_elsewhere(group, topic, segment)
            if found is not None:
                return OffsetReply(offset=logical(segment, found))
        raise Refused(
            ResponseCode.QUERY_NOT_FOUND, f"group {group} has no progress in {topic}-{ask.queue_id}"
        )

    async def _progress_elsewhere(self, group: str, topic: str, segment: Segment) -> int | None:
        ask = QueryConsumerOffset(
            consumer_group=group,
            topic=topic,
            queue_id=segment.queue_id,
            set_zero_if_not_found=False,
            lo=False,
            bname=segment.bname,
        )
        try:
            return (await self._queues.ask(topic, segment, ask)).offset
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    @handles(UpdateConsumerOffset)
    async def commit(self, ask: UpdateConsumerOffset) -> None:
        _, segment = self._elsewhere(self._segments(ask), ask.commit_offset)
        forwarded = dataclasses.replace(
            ask,
            queue_id=segment.queue_id,
            commit_offset=local(segment, ask.commit_offset),
            lo=False,
            bname=segment.bname,
        )
        await self._queues.ask(ask.topic, segment, forwarded)

    def _segments(self, ask: PullMessage | QueryConsumerOffset | UpdateConsumerOffset) -> list[Segment]:
        segments = self._queues.led(ask.topic, ask.queue_id, ask.lo)
        if segments is None:
            raise _changed()
        return segments

    def _elsewhere(self, segments: Sequence[Segment], offset: int) -> tuple[int, Segment]:
        """Return the segment of an offset, which was at another broker when the native module looked."""
        index = segment_at(segments, offset)
        if index is None or self._queues.is_own(segments[index]):
            raise _changed()
        return index, segments[index]


@dataclass(frozen=True, slots=True)
class _Answer:
    code: ResponseCode
    pulled: Pulled


def _continued(segments: Sequence[Segment], index: int, offset: int, code: int, found: Pulled) -> _Answer:
    """Translate an answer. At the end of a segment, the consumer continues in the next one."""
    result, segment = ResponseCode(code), segments[index]
    begin, end, following = found.min_offset, found.max_offset, found.next_begin_offset
    if result is not ResponseCode.SUCCESS:
        if offset < begin:
            result = ResponseCode.PULL_RETRY_IMMEDIATELY if index else ResponseCode.PULL_OFFSET_MOVED
            following = begin
        elif offset >= end and index + 1 < len(segments):
            result, segment = ResponseCode.PULL_RETRY_IMMEDIATELY, segments[index + 1]
            begin = end = following = segment.start_offset
        elif offset >= end:
            result, following = ResponseCode.PULL_NOT_FOUND, offset
    pulled = dataclasses.replace(
        found,
        next_begin_offset=logical(segment, following),
        min_offset=logical(segment, begin),
        max_offset=max(logical(segment, end), segments[-1].logic_offset),
        offset_delta=segment.logic_offset - segment.start_offset,
        body=found.body if result is ResponseCode.SUCCESS else b"",
    )
    return _Answer(result, pulled)


def _changed() -> Refused:
    return Refused(ResponseCode.SYSTEM_BUSY, "the mapping of the topic has just changed; repeat the request")
