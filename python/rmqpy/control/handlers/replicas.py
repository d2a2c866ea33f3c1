"""Requests of slaves: offsets and progress, topics and groups. On the event loop; a worker reads files.

Apache's slaves poll every minute, and for timers every three seconds; rmqpy's do the same at an Apache master.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rmqpy._native import Offsets
from rmqpy.clock import Clock
from rmqpy.control.groups import light_offsets
from rmqpy.control.groups.offset_file import OffsetFile
from rmqpy.control.groups.order_file import read_orders
from rmqpy.control.replicas.status import ReplicaStatus
from rmqpy.control.store.delay_offsets import DelayFile
from rmqpy.control.store.timer_progress import read_progress
from rmqpy.control.tables.pagination import is_version
from rmqpy.protocol.requests.replicas import (
    AllConsumerOffsets,
    DelayTable,
    GetAllConsumerOffset,
    GetAllDelayOffset,
    GetBrokerHaStatus,
    GetTimerCheckPoint,
    HaStatus,
    OffsetTable,
)
from rmqpy.remoting.server import handles


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaHandlers:
    """Offsets, delay levels and timers, as the broker would find them after a restart."""

    _offsets: Offsets
    _offset_file: OffsetFile
    _delay_file: DelayFile
    _delivered: Callable[[], dict[int, int]]
    #: `config/timercheck`.
    _timer_file: Path
    _status: ReplicaStatus
    _clock: Clock

    @handles(GetAllConsumerOffset)
    async def consumer_offsets(self, ask: GetAllConsumerOffset) -> AllConsumerOffsets:
        version = self._offset_file.version
        orders = (
            await asyncio.to_thread(read_orders, self._offsets, self._clock) if ask.wants_orders else None
        )
        # Commits after the last write have no version yet.
        if self._offset_file.is_saved and is_version(ask.data_version, version):
            return AllConsumerOffsets(body=OffsetTable(data_version=version, order_table=orders))
        _, table = await asyncio.to_thread(self._offsets.snapshot)
        plain, light = light_offsets.split(table)
        return AllConsumerOffsets(
            body=OffsetTable(
                data_version=version,
                offset_table={key: dict(queues) for key, queues in plain.items()},
                lmq_offset_table=light or None,
                order_table=orders,
            )
        )

    @handles(GetAllDelayOffset)
    def delay_offsets(self, ask: GetAllDelayOffset) -> DelayTable:
        return DelayTable(data_version=self._delay_file.version, offset_table=self._delivered())

    @handles(GetTimerCheckPoint)
    async def timer_check_point(self, ask: GetTimerCheckPoint) -> bytes:
        return await asyncio.to_thread(read_progress, self._timer_file)

    @handles(GetBrokerHaStatus)
    def ha_status(self, ask: GetBrokerHaStatus) -> HaStatus:
        return self._status.now()
