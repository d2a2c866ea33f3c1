"""Popped messages in flight, for an operator.

Brokers record each pop and each acknowledgement as a timed message. A message is in flight if the newest records of its
broker have its checkpoint, no acknowledgement of it, and its time is not over. Works at Apache's brokers, too.
"""

import json
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from rmqpy._native import ReceivedMessage
from rmqpy.admin.connection import Part
from rmqpy.admin.reading import read
from rmqpy.admin.topics import QueueState, Topics
from rmqpy.clock import date_of
from rmqpy.errors import ConfigError, TopicNotFound
from rmqpy.protocol import names
from rmqpy.protocol.requests.invisibility import ChangeInvisibleTime

#: The newest records that are read of each broker.
RECORDS_MAX: Final = 20_000
#: Maximum messages that are listed, those to be redelivered first.
MESSAGES_MAX: Final = 500
_CHECKPOINT: Final = "ck"
#: The property of a record with the queue of the revive topic that it is for.
_REVIVE_QUEUE: Final = "REAL_QID"


class InFlight(NamedTuple):
    """A message that a member of a group has received and not finished."""

    topic: str
    broker: str
    queue_id: int
    offset: int
    #: Names this delivery: `show_now` takes it.
    handle: str
    popped_at: datetime
    #: When it is redelivered, unless it is acknowledged or extended.
    visible_at: datetime
    #: The member's address; None where the broker does not record it.
    client: str | None
    #: None, as the message id, where the message cannot be read any more.
    delivery_attempt: int | None
    message_id: str | None


class InFlightMessages(NamedTuple):
    """Messages in flight of one group, in the order of their redelivery."""

    messages: list[InFlight]
    #: Further ones, which are not listed.
    unlisted: int
    #: Older records that were not read, of whatever.
    unscanned: int


class _Key(NamedTuple):
    """The read that a checkpoint records."""

    topic: str
    queue_id: int
    start: int
    popped_ms: int
    broker: str


class _Checkpoint(NamedTuple):
    key: _Key
    invisible_ms: int
    revive_queue: str
    client: str | None
    offsets: tuple[int, ...]


class InFlightTable(Part):
    """The messages in flight of one cluster."""

    async def of(self, group: str) -> InFlightMessages:
        """List the messages that members of a group have popped and not finished."""
        found: list[InFlight] = []
        unscanned = 0
        for queue in await self._queues():
            first = max(queue.begin, queue.end - RECORDS_MAX)
            unscanned += first - queue.begin
            records = [each async for each in read(self._cluster, names.TIMER_TOPIC, queue, first, queue.end)]
            found += _open(group, records, time.time() * 1_000)
        found.sort(key=lambda each: (each.visible_at, each.topic, each.queue_id, each.offset))
        listed = await self._described(found[:MESSAGES_MAX])
        return InFlightMessages(listed, len(found) - len(listed), unscanned)

    async def show_now(self, group: str, topic: str, handle: str) -> None:
        """Make a message in flight visible now; topic and handle are those that `of` returned."""
        try:
            *_, broker, queue_id, offset = handle.split(" ")
            queue, at = int(queue_id), int(offset)
        except ValueError:
            raise ConfigError(f"{handle!r} is not the handle of a popped message") from None
        ask = ChangeInvisibleTime(
            consumer_group=group,
            topic=topic,
            queue_id=queue,
            extra_info=handle,
            offset=at,
            invisible_time=0,
            bname=broker,
        )
        await self._cluster.ask(await self._cluster.master_of(broker), ask)

    async def _queues(self) -> list[QueueState]:
        try:
            return await Topics(self._cluster).describe(names.TIMER_TOPIC)
        except TopicNotFound:
            return []

    async def _described(self, found: list[InFlight]) -> list[InFlight]:
        """Add the id and the attempt of each message, as far as they can be read."""
        wanted: dict[tuple[str, str, int], set[int]] = {}
        for each in found:
            wanted.setdefault((each.topic, each.broker, each.queue_id), set()).add(each.offset)
        messages: dict[tuple[str, str, int, int], ReceivedMessage] = {}
        for (topic, broker, queue_id), offsets in wanted.items():
            queue = await self._queue(topic, broker, queue_id)
            if queue is None:
                continue
            for begin, end in _runs(offsets):
                async for message in read(self._cluster, topic, queue, begin, end):
                    messages[topic, broker, queue_id, message.queue_offset] = message

        def described(row: InFlight) -> InFlight:
            known = messages.get((row.topic, row.broker, row.queue_id, row.offset))
            if known is None:
                return row
            return row._replace(delivery_attempt=known.delivery_attempt, message_id=known.message_id)

        return list(map(described, found))

    async def _queue(self, topic: str, broker: str, queue_id: int) -> QueueState | None:
        try:
            states = await Topics(self._cluster).describe(topic)
        except TopicNotFound:
            return None
        return next((each for each in states if (each.broker, each.queue_id) == (broker, queue_id)), None)


def _open(group: str, records: Iterable[ReceivedMessage], now_ms: float) -> list[InFlight]:
    """The messages of checkpoints whose time is not over, without those that were acknowledged."""
    checkpoints: dict[_Key, _Checkpoint] = {}
    acknowledged: dict[_Key, set[int]] = {}
    for record in records:
        try:
            body = json.loads(record.body)
            if body.get("c") != group:
                continue
            key = _Key(
                body["t"],
                int(body["q"]),
                int(body["so"]),
                int(body["pt"]),
                body.get("bn", record.queue.broker),
            )
            if record.tag == _CHECKPOINT:
                checkpoints[key] = _checkpoint(key, body, record)
            else:
                acknowledged.setdefault(key, set()).update(body.get("aol") or [int(body["ao"])])
        except (ValueError, TypeError, KeyError, AttributeError):
            # Other timed messages wait in the same topic.
            continue
    return [
        _row(group, checkpoint, offset)
        for key, checkpoint in checkpoints.items()
        if key.popped_ms + checkpoint.invisible_ms > now_ms
        for offset in checkpoint.offsets
        if offset not in acknowledged.get(key, ())
    ]


def _checkpoint(key: _Key, body: Mapping[str, Any], record: ReceivedMessage) -> _Checkpoint:
    differences = body.get("d") or range(int(body["n"]))
    # rmqpy's brokers record the client as the sender of the checkpoint, Apache's record themselves.
    client = None if record.born_host == record.store_host else record.born_host
    return _Checkpoint(
        key,
        int(body["it"]),
        record.properties[_REVIVE_QUEUE],
        client,
        tuple(key.start + int(difference) for difference in differences),
    )


def _row(group: str, checkpoint: _Checkpoint, offset: int) -> InFlight:
    topic, queue_id, start, popped_ms, broker = checkpoint.key
    mark = 1 if topic.startswith(f"{names.RETRY_PREFIX}{group}_") else 0
    if topic.startswith(f"{names.RETRY_PREFIX}{group}+"):
        mark = 2
    fields = (
        start,
        popped_ms,
        checkpoint.invisible_ms,
        checkpoint.revive_queue,
        mark,
        broker,
        queue_id,
        offset,
    )
    return InFlight(
        topic=topic,
        broker=broker,
        queue_id=queue_id,
        offset=offset,
        handle=" ".join(map(str, fields)),
        popped_at=date_of(popped_ms),
        visible_at=date_of(popped_ms + checkpoint.invisible_ms),
        client=checkpoint.client,
        delivery_attempt=None,
        message_id=None,
    )


def _runs(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Begin and end of runs of consecutive offsets.

    >>> _runs({1, 2, 3, 7})
    [(1, 4), (7, 8)]
    """
    runs: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))
    return runs
