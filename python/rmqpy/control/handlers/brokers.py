"""The broker about itself: its figures and its settings. Runs on the event loop."""

from __future__ import annotations

from rmqpy.config import properties
from rmqpy.control.settings import LiveConfig
from rmqpy.control.statistics.runtime import Runtime
from rmqpy.errors import ConfigError
from rmqpy.protocol import fastjson
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.requests.brokers import (
    BrokerConfigReply,
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    StringTable,
    UpdateBrokerConfig,
)
from rmqpy.remoting.server import Refused, handles


class BrokerHandlers:
    """Figures, settings, and their change."""

    def __init__(self, config: LiveConfig, runtime: Runtime) -> None:
        self._config = config
        self._runtime = runtime

    @handles(GetBrokerRuntimeInfo)
    async def runtime_info(self, ask: GetBrokerRuntimeInfo) -> StringTable:
        return StringTable(table=await self._runtime.table())

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
            given = properties.parse(ask.body)
        except properties.PropertiesError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}") from None
        try:
            await self._config.change(given)
        except ConfigError as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None
