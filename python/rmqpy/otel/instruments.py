"""Instruments: the tracer and the metrics that all clients of a process share. Any thread."""

from typing import Final

from opentelemetry import metrics, trace

from rmqpy import __version__
from rmqpy.otel import names

#: Of the conventions that the names are of.
_SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.38.0"


class Instruments:
    """What is told of messages: spans by a tracer, and four metrics."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        """Providers are the process's unless given."""
        self.tracer = trace.get_tracer("rmqpy", __version__, tracer_provider, _SCHEMA_URL)
        meter = metrics.get_meter("rmqpy", __version__, meter_provider, _SCHEMA_URL)
        self.operation_duration = meter.create_histogram(
            names.OPERATION_DURATION,
            unit="s",
            description="Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=names.DURATION_BOUNDS,
        )
        self.process_duration = meter.create_histogram(
            names.PROCESS_DURATION,
            unit="s",
            description="Duration of processing operation.",
            explicit_bucket_boundaries_advisory=names.DURATION_BOUNDS,
        )
        self.sent_messages = meter.create_counter(
            names.SENT_MESSAGES,
            unit="{message}",
            description="Number of messages producer attempted to send to the broker.",
        )
        self.consumed_messages = meter.create_counter(
            names.CONSUMED_MESSAGES,
            unit="{message}",
            description="Number of messages that were delivered to the application.",
        )
