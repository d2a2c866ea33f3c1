"""OpenTelemetry: spans and metrics of producers and consumers. Needs `pip install rmqpy[otel]`; no other module imports
it.

::

    from rmqpy.otel import RocketMQInstrumentor

    RocketMQInstrumentor().instrument()

Clients created afterwards report each message to OpenTelemetry; `opentelemetry-instrument` does the same without a
change of the program. `rmqpy.otel.names` has the names of OpenTelemetry's messaging conventions.
"""

from rmqpy.otel.instrumentor import RocketMQInstrumentor

__all__ = ["RocketMQInstrumentor"]
