"""Orders on disk: `consumerOrderInfo.json`, the messages that groups popping in order hold.

Owns the file; the data plane owns the table. Written every 10 s after changes, and at the stop, as in Apache's broker.
A crash forgets the last blocks, and repeats messages in their order. Entries of unknown topics, groups and queues are
dropped. Threads: the event loop's; a worker takes the snapshot and writes the file.
"""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Final

from rmqpy._native import Offsets, OrderedBatch
from rmqpy.clock import Clock
from rmqpy.control.tables.file import TableFile
from rmqpy.protocol.declare import record
from rmqpy.protocol.orders import OrderInfo, OrderTable
from rmqpy.protocol.topics import DataVersion

log = logging.getLogger(__name__)

ORDERS_SECONDS: Final = 10.0
#: A count that 5.5 writes next to the table, and that would soon be wrong.
_DERIVED: Final = "orderInfoCount"
#: Messages of one batch: those that have a bit.
_BATCH_MAX: Final = 64
_NUMBERS: Final = range(1 << 63)
_TIMES: Final = range(-(1 << 63), 1 << 63)
_COUNTS: Final = range(1 << 31)
_QUEUE_IDS: Final = range(1 << 31)


@record
class OrderContent:
    """The content of the file, which has no version."""

    table: OrderTable = dataclasses.field(default_factory=dict)

    @property
    def data_version(self) -> DataVersion:
        return DataVersion()


class OrderFile:
    """The file and the table it is made from."""

    def __init__(self, path: Path, offsets: Offsets, clock: Clock) -> None:
        self._offsets = offsets
        self._clock = clock
        self._file = TableFile(path, OrderContent, lambda: self._content, clock)
        self._saved_changes = offsets.order_changes

    def load(self) -> None:
        """Read the file. Blocks; before the first pop. Raises `ConfigError` naming it."""
        found = self._file.load()
        if found is None:
            return
        self._file.forget(_DERIVED)
        load_orders(self._offsets, found.table)
        self._saved_changes = self._offsets.order_changes

    async def save(self) -> None:
        """Write the file if something was popped or acknowledged in order since the last time. Raises `StoreError`."""
        changes = self._offsets.order_changes
        if changes != self._saved_changes:
            await self._file.save()
            self._saved_changes = changes

    def _content(self, version: DataVersion) -> OrderContent:
        return OrderContent(table=read_orders(self._offsets, self._clock))


def read_orders(offsets: Offsets, clock: Clock) -> OrderTable:
    """What groups hold now. May take a while: call it in a worker."""
    _, table = offsets.orders(clock.wall_ms())
    return {
        key: {queue_id: _info(batch) for queue_id, batch in queues.items()} for key, queues in table.items()
    }


def load_orders(offsets: Offsets, table: OrderTable) -> None:
    """Replace what groups hold. Batches with impossible numbers are left out."""
    batches = {
        key: {
            queue_id: batch
            for queue_id, info in queues.items()
            if queue_id in _QUEUE_IDS and (batch := _batch(info)) is not None
        }
        for key, queues in table.items()
    }
    dropped = sum(map(len, table.values())) - sum(map(len, batches.values()))
    if dropped:
        log.warning("dropped %d batches popped in order with impossible numbers", dropped)
    offsets.load_orders(batches)


def _info(batch: OrderedBatch) -> OrderInfo:
    first, *others = batch.offsets or [0]
    return OrderInfo(
        pop_time=batch.pop_ms,
        invisible_time=batch.invisible_ms,
        offsets=[first, *(other - first for other in others)],
        next_visible_times=batch.visible_ms,
        consumed_counts=batch.counts,
        last_consume_time=batch.used_ms,
        commit_bits=batch.acked,
        attempt_id=batch.attempt,
    )


def _batch(info: OrderInfo) -> OrderedBatch | None:
    first, *others = info.offsets or [0]
    offsets = [first, *(first + other for other in others)]
    times = [info.pop_time, info.invisible_time or 0, info.last_consume_time, info.commit_bits]
    is_possible = (
        bool(info.offsets)
        and len(offsets) <= _BATCH_MAX
        and all(offset in _NUMBERS for offset in (*offsets, *info.next_visible_times, *info.consumed_counts))
        and all(time in _TIMES for time in (*times, *info.next_visible_times.values()))
        and all(count in _COUNTS for count in info.consumed_counts.values())
    )
    if not is_possible:
        return None
    return OrderedBatch(
        pop_ms=info.pop_time,
        invisible_ms=info.invisible_time,
        offsets=offsets,
        visible_ms=info.next_visible_times,
        counts=info.consumed_counts,
        used_ms=info.last_consume_time,
        acked=info.commit_bits,
        attempt=info.attempt_id,
    )
