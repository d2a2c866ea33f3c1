"""Instrumentor: switches telemetry of rmqpy's clients on and off, by hand or by `opentelemetry-instrument`.

Owns the entry of telemetry in the list of what every client has. Any thread.
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
    """Has every producer and consumer that is made from then on tell OpenTelemetry of its messages.

    `instrument(tracer_provider=…, meter_provider=…)` takes providers other than the process's; `uninstrument()` ends it
    for clients made later.
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
