"""Requests about leadership: the epochs of the log, and a change of the leader. On the event loop; a worker reads
the log.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from rmqpy.config.broker import BrokerConfig
from rmqpy.control.replicas.log_stream import LogStream
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.leadership import (
    OPEN_END,
    BrokerEpochs,
    EpochCache,
    EpochEntry,
    GetBrokerEpochCache,
    NotifyBrokerRoleChanged,
    RoleChanged,
)
from rmqpy.remoting.server import Refused, handles


class RoleChanges(Protocol):
    """Takes a change of the leader."""

    async def change(self, ask: NotifyBrokerRoleChanged) -> RoleChanged:
        """Lead, or stop leading. Raises `Refused`."""


#: The most bytes of one digest.
DIGEST_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class LeadershipHandlers:
    """Queries and notifications of slaves and tools."""

    _config: BrokerConfig
    _stream: LogStream
    _succession: RoleChanges

    @handles(GetBrokerEpochCache)
    async def epochs(self, ask: GetBrokerEpochCache) -> BrokerEpochs:
        begin, end = self._stream.range()
        known = self._stream.epochs()
        ends = [start for _, start in known[1:]] + [OPEN_END]
        entries = [
            EpochEntry(epoch=epoch, start_offset=start, end_offset=until)
            for (epoch, start), until in zip(known, ends, strict=False)
        ]
        return BrokerEpochs(
            body=EpochCache(
                cluster_name=self._config.cluster,
                broker_name=self._config.name,
                broker_id=self._config.replication.broker_id,
                epoch_list=entries,
                max_offset=end,
                min_offset=begin,
            ),
            digest=await self._digest(ask.digest_begin, ask.digest_end),
        )

    async def _digest(self, begin: int | None, end: int | None) -> int | None:
        if begin is None or end is None:
            return None
        if not (0 <= begin <= end <= begin + DIGEST_BYTES_MAX):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"a digest is of 0 to {DIGEST_BYTES_MAX} bytes, not of {begin} to {end}",
            )
        return await asyncio.to_thread(self._stream.digest, begin, end)

    @handles(NotifyBrokerRoleChanged)
    async def role_changed(self, ask: NotifyBrokerRoleChanged) -> RoleChanged:
        return await self._succession.change(ask)
