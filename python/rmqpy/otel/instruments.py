"""Instruments: the tracer and metrics shared by all clients of a process. Any thread."""

from typing import Final

from opentelemetry import metrics, trace

from rmqpy import __version__
from rmqpy.otel import names

#: The version of the conventions.
_SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.38.0"


class Instruments:
    """A tracer for spans, and four metrics."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        """Providers default to the process's."""
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
