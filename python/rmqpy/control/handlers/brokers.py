"""Requests about the broker as a whole: runtime information, settings, expired files, statistics. On the event loop;
the store works in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rmqpy._native import Store
from rmqpy.config import properties
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.keys import ProtectedKey
from rmqpy.control.settings import LiveConfig
from rmqpy.control.standing import Standing
from rmqpy.control.statistics.history import History
from rmqpy.control.statistics.runtime import Runtime
from rmqpy.control.statistics.traffic import Statistics
from rmqpy.control.tiered.storage import TieredStorage
from rmqpy.errors import ConfigError
from rmqpy.protocol import fastjson, plugin_report, troubles
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.plugin_report import PluginState
from rmqpy.protocol.requests.brokers import (
    HISTORY,
    BrokerConfigReply,
    BrokerStats,
    CleanExpiredConsumeQueue,
    DeleteExpiredCommitLog,
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    StatsWindow,
    StringTable,
    UpdateBrokerConfig,
    ViewBrokerStatsData,
)
from rmqpy.remoting.server import Refused, handles


@dataclass(frozen=True, slots=True, eq=False)
class BrokerHandlers:
    """Replies to deletions follow their end; Apache's broker replies at their start."""

    _config: LiveConfig
    _runtime: Runtime
    _standing: Standing
    _store: Store
    _statistics: Statistics
    _history: History
    #: Applies changed settings: gets the configuration before.
    _apply: Callable[[BrokerConfig], None]
    _plugins: Callable[[], list[PluginState]]
    _tier: TieredStorage | None

    @handles(GetBrokerRuntimeInfo)
    async def runtime_info(self, ask: GetBrokerRuntimeInfo) -> StringTable:
        reported = troubles.write(self._standing.now()) | plugin_report.write(self._plugins())
        tiered = {} if self._tier is None else self._tier.report()
        return StringTable(table=await self._runtime.table() | reported | tiered)

    @handles(GetBrokerConfig)
    def config(self, ask: GetBrokerConfig) -> BrokerConfigReply:
        lines = sorted(self._config.now.write().items())
        return BrokerConfigReply(
            version=fastjson.dumps(json_tree(self._config.version)),
            # Apache's tools parse this as Java properties, but its broker writes no escapes.
            body="".join(f"{key}={value}\n" for key, value in lines),
        )

    @handles(UpdateBrokerConfig)
    async def update(self, ask: UpdateBrokerConfig) -> None:
        try:
            given = properties.parse_request(ask.body)
        except properties.PropertiesError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}") from None
        try:
            before = await self._config.change(given)
        except ProtectedKey as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None
        except ConfigError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if before is not None:
            self._apply(before)

    @handles(DeleteExpiredCommitLog)
    async def delete_expired(self, ask: DeleteExpiredCommitLog) -> None:
        await asyncio.to_thread(self._store.delete_expired)

    @handles(CleanExpiredConsumeQueue)
    async def trim(self, ask: CleanExpiredConsumeQueue) -> None:
        # Apache's broker also removes empty queues, so that their offsets restart at 0, and groups that were further
        # would skip new messages. Here a queue keeps its end.
        await asyncio.to_thread(self._store.trim)

    @handles(ViewBrokerStatsData)
    def view(self, ask: ViewBrokerStatsData) -> BrokerStats:
        if ask.stats_name == HISTORY:
            nothing = StatsWindow(sum=0, tps=0.0, avgpt=0.0)
            kinds, names = ask.stats_key.split(","), (ask.names or "").split("\n")
            return BrokerStats(
                stats_minute=nothing,
                stats_hour=nothing,
                stats_day=nothing,
                history=self._history.view(kinds, names),
            )
        found = self._statistics.view(ask.stats_name, ask.stats_key)
        if found is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"The stats <{ask.stats_name}> <{ask.stats_key}> not exist"
            )
        return found
