"""OpenTelemetry: spans and metrics of producers and consumers. Needs `pip install rmqpy[otel]`, and is imported by
nothing else.

::

    from rmqpy.otel import RocketMQInstrumentor

    RocketMQInstrumentor().instrument()

Clients that are made after that tell OpenTelemetry of each message; `opentelemetry-instrument` does the same without a
change of the program. Names are those of OpenTelemetry's conventions for messaging, in `rmqpy.otel.names`.
"""

from rmqpy.otel.instrumentor import RocketMQInstrumentor

__all__ = ["RocketMQInstrumentor"]
