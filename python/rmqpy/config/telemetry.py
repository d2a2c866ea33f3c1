"""Configuration of telemetry: keys of `broker.conf` for pushed metrics and their log."""

from __future__ import annotations

import dataclasses
from urllib.parse import urlsplit

from rmqpy.config.keys import Settings, key
from rmqpy.errors import ConfigError


def check_url(name: str, value: str, what: str) -> None:
    """Raise `ConfigError` for a value that is neither empty nor an HTTP URL."""
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ConfigError(f"{name}={value} is not the URL of {what}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TelemetryConfig(Settings):
    """Targets and intervals of pushed metrics."""

    otlp_endpoint: str = key(
        "otlpEndpoint",
        "",
        "Base URL of an OpenTelemetry collector, such as http://127.0.0.1:4318, for the metrics of /metrics by OTLP "
        "over HTTP; empty: off. Needs `pip install rmqpy[otel]`. Apache's broker has no such key.",
    )
    otlp_interval_ms: int = key(
        "otlpIntervalMs",
        60_000,
        "Interval between exports to the collector.",
        unit="ms",
        low=1_000,
        high=3_600_000,
    )
    log_interval_ms: int = key(
        "metricsLogIntervalMs",
        0,
        "Interval of metrics in the log, by the logger `rmqpy.monitor.push`; 0: off. Apache's broker has no "
        "such key.",
        unit="ms",
        low=0,
        high=3_600_000,
    )

    history_minutes: int = key(
        "historyMinutes",
        60,
        "History in memory for the charts of the console: rates, lags, dead letters, disk, latency and replication, as "
        "360 samples of each topic and group; 0: off. Apache's broker has no such key.",
        unit="minutes",
        low=0,
        high=1_440,
    )

    alerts_file: str = key(
        "alertsFile",
        "",
        "TOML file with alert rules and receivers, which this broker watches for the whole cluster; empty: none. Needs "
        "namesrvAddr. Apache's broker has no such key.",
    )

    prometheus_url: str = key(
        "prometheusUrl",
        "",
        "Base URL of Prometheus, such as http://10.0.0.9:9090, as browsers reach it: the charts of the console link to "
        "it for longer times; empty: no link. Apache's broker has no such key.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_url("otlpEndpoint", self.otlp_endpoint, "a collector, such as http://127.0.0.1:4318")
        check_url("prometheusUrl", self.prometheus_url, "Prometheus, such as http://10.0.0.9:9090")
        if 0 < self.log_interval_ms < 1_000:
            raise ConfigError(f"metricsLogIntervalMs={self.log_interval_ms} must be 0, or at least 1000")
