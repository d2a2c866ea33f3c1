"""Configuration of telemetry: the keys of `broker.conf` that say where figures go, beside the HTTP port."""

from __future__ import annotations

import dataclasses
from urllib.parse import urlsplit

from rmqpy.config.keys import Settings, key
from rmqpy.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class TelemetryConfig(Settings):
    """Where a broker sends its metrics, and how often."""

    otlp_endpoint: str = key(
        "otlpEndpoint",
        "",
        "Base address of an OpenTelemetry collector, such as http://127.0.0.1:4318, that is sent the metrics of "
        "/metrics by OTLP over HTTP; empty: none. Needs `pip install rmqpy[otel]`. Apache's broker has no such key.",
    )
    otlp_interval_ms: int = key(
        "otlpIntervalMs", 60_000, "It is sent them so often.", unit="ms", low=1_000, high=3_600_000
    )
    log_interval_ms: int = key(
        "metricsLogIntervalMs",
        0,
        "Metrics are written to the log so often, by the logger `rmqpy.monitor.push`; 0: never. Apache's broker has no "
        "such key.",
        unit="ms",
        low=0,
        high=3_600_000,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.otlp_endpoint:
            parts = urlsplit(self.otlp_endpoint)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigError(
                    f"otlpEndpoint={self.otlp_endpoint} is no address of a collector, such as http://127.0.0.1:4318"
                )
        if 0 < self.log_interval_ms < 1_000:
            raise ConfigError(
                f"metricsLogIntervalMs={self.log_interval_ms} is below a second: 0, or 1000 and more"
            )
