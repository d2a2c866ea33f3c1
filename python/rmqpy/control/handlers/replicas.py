"""Requests of slaves: offsets and progress, which they copy beside the log, topics and groups. Runs on the event loop;
files are read in a worker.

Apache's slaves ask every minute, and for the timers every three seconds; ours likewise at an Apache master.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rmqpy._native import Offsets
from rmqpy.control.groups.offset_file import OffsetFile
from rmqpy.control.replicas.status import ReplicaStatus
from rmqpy.control.store.delay_offsets import DelayFile
from rmqpy.control.store.timer_progress import read_progress
from rmqpy.control.tables.pagination import is_version
from rmqpy.protocol.requests.replicas import (
    AllConsumerOffsets,
    DelayTable,
    GetAllConsumerOffset,
    GetAllDelayOffset,
    GetAllMessageRequestMode,
    GetBrokerHaStatus,
    GetTimerCheckPoint,
    HaStatus,
    MessageRequestModes,
    OffsetTable,
)
from rmqpy.remoting.server import handles


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaHandlers:
    """Offsets, delay levels and timers, as the broker itself would find them after a restart."""

    _offsets: Offsets
    _offset_file: OffsetFile
    _delay_file: DelayFile
    _delivered: Callable[[], dict[int, int]]
    #: `config/timercheck`.
    _timer_file: Path
    _status: ReplicaStatus

    @handles(GetAllConsumerOffset)
    async def consumer_offsets(self, ask: GetAllConsumerOffset) -> AllConsumerOffsets:
        version = self._offset_file.version
        # What was committed since the file was written has no version yet.
        if self._offset_file.is_saved and is_version(ask.data_version, version):
            return AllConsumerOffsets(body=OffsetTable(data_version=version))
        _, table = await asyncio.to_thread(self._offsets.snapshot)
        return AllConsumerOffsets(body=OffsetTable(data_version=version, offset_table=table))

    @handles(GetAllDelayOffset)
    def delay_offsets(self, ask: GetAllDelayOffset) -> DelayTable:
        return DelayTable(data_version=self._delay_file.version, offset_table=self._delivered())

    @handles(GetTimerCheckPoint)
    async def timer_check_point(self, ask: GetTimerCheckPoint) -> bytes:
        return await asyncio.to_thread(read_progress, self._timer_file)

    @handles(GetBrokerHaStatus)
    def ha_status(self, ask: GetBrokerHaStatus) -> HaStatus:
        return self._status.now()

    @handles(GetAllMessageRequestMode)
    def request_modes(self, ask: GetAllMessageRequestMode) -> MessageRequestModes:
        return MessageRequestModes()
