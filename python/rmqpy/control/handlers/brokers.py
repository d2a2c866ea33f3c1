"""The broker as a whole: runtime information, settings, expired files, statistics. Runs on the event loop; the store
works in a thread."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rmqpy._native import Store
from rmqpy.config import properties
from rmqpy.config.keys import ProtectedKey
from rmqpy.control.settings import LiveConfig
from rmqpy.control.standing import Standing
from rmqpy.control.statistics.runtime import Runtime
from rmqpy.control.statistics.traffic import Statistics
from rmqpy.errors import ConfigError
from rmqpy.protocol import fastjson, troubles
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.requests.brokers import (
    BrokerConfigReply,
    BrokerStats,
    CleanExpiredConsumeQueue,
    DeleteExpiredCommitLog,
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    StringTable,
    UpdateBrokerConfig,
    ViewBrokerStatsData,
)
from rmqpy.remoting.server import Refused, handles


@dataclass(frozen=True, slots=True, eq=False)
class BrokerHandlers:
    """Deletions are answered when they are done; Apache's broker answers when it has begun."""

    _config: LiveConfig
    _runtime: Runtime
    _standing: Standing
    _store: Store
    _statistics: Statistics

    @handles(GetBrokerRuntimeInfo)
    async def runtime_info(self, ask: GetBrokerRuntimeInfo) -> StringTable:
        return StringTable(table=await self._runtime.table() | troubles.write(self._standing.now()))

    @handles(GetBrokerConfig)
    def config(self, ask: GetBrokerConfig) -> BrokerConfigReply:
        lines = sorted(self._config.now.write().items())
        return BrokerConfigReply(
            version=fastjson.dumps(json_tree(self._config.version)),
            # Apache's tools read this as properties, but its broker writes it without escapes.
            body="".join(f"{key}={value}\n" for key, value in lines),
        )

    @handles(UpdateBrokerConfig)
    async def update(self, ask: UpdateBrokerConfig) -> None:
        try:
            given = properties.parse_request(ask.body)
        except properties.PropertiesError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}") from None
        try:
            await self._config.change(given)
        except ProtectedKey as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None
        except ConfigError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None

    @handles(DeleteExpiredCommitLog)
    async def delete_expired(self, ask: DeleteExpiredCommitLog) -> None:
        await asyncio.to_thread(self._store.delete_expired)

    @handles(CleanExpiredConsumeQueue)
    async def trim(self, ask: CleanExpiredConsumeQueue) -> None:
        # Apache's broker also forgets queues that hold nothing any more, whose offsets then begin at 0 again: members
        # that were further would pass over what comes next. Here a queue keeps its end.
        await asyncio.to_thread(self._store.trim)

    @handles(ViewBrokerStatsData)
    def view(self, ask: ViewBrokerStatsData) -> BrokerStats:
        found = self._statistics.view(ask.stats_name, ask.stats_key)
        if found is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"The stats <{ask.stats_name}> <{ask.stats_key}> not exist"
            )
        return found
