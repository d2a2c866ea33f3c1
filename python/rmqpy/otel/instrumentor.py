"""Instrumentor: turns telemetry of rmqpy's clients on and off, by hand or with `opentelemetry-instrument`.

Owns telemetry's entry in the list of hooks of every client. Any thread.
"""

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from rmqpy.client.observers import EVERYWHERE, Telemetry
from rmqpy.config.client import ClientConfig
from rmqpy.otel.calls import CallTelemetry
from rmqpy.otel.instruments import Instruments
from rmqpy.otel.receives import ReceiveTelemetry
from rmqpy.otel.sends import SendTelemetry


class RocketMQInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # its package has no checked types
    """Lets every producer and consumer created afterwards report its messages to OpenTelemetry.

    `instrument(tracer_provider=…, meter_provider=…)` uses other providers than the process's; `uninstrument()` ends
    it for clients created later.
    """

    _telemetry: Telemetry | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        return ("rmqpy",)

    def _instrument(self, **given: Any) -> None:
        shared = Instruments(given.get("tracer_provider"), given.get("meter_provider"))

        def sends(config: ClientConfig, group: str) -> SendTelemetry:
            return SendTelemetry(shared, config.namespace)

        def calls(config: ClientConfig, group: str, is_broadcast: bool) -> CallTelemetry:
            return CallTelemetry(shared, config.namespace, group, is_broadcast=is_broadcast)

        def receives(config: ClientConfig, group: str) -> ReceiveTelemetry:
            return ReceiveTelemetry(shared, config.namespace, group)

        self._telemetry = Telemetry(sends, calls, receives)
        EVERYWHERE.append(self._telemetry)

    def _uninstrument(self, **given: Any) -> None:
        if self._telemetry is not None:
            EVERYWHERE.remove(self._telemetry)
            self._telemetry = None
