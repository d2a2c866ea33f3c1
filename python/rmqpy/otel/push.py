"""OTLP push: the metrics of /metrics, sent to an OpenTelemetry collector.

Owns the SDK's exporter. The server's own values are translated; nothing is counted twice.
Threads: one worker at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from rmqpy import __version__
from rmqpy.errors import ConnectError
from rmqpy.monitor.exposition import SERIES_MAX, Family, Labels, Sample

#: The timeout of a collector, in seconds.
_TIMEOUT_S: Final = 10
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


class OtlpExporter:
    """Sends metrics to a collector, by OTLP over HTTP."""

    def __init__(self, endpoint: str, *, name: str, role: str) -> None:
        """`endpoint` is the collector's base URL, `name` the server's name, `role` its role."""
        self._endpoint = endpoint
        self._exporter = OTLPMetricExporter(f"{endpoint.rstrip('/')}/v1/metrics", timeout=_TIMEOUT_S)
        self._resource = Resource.create({"service.name": f"rmqpy-{role}", "service.instance.id": name})
        self._scope = InstrumentationScope("rmqpy", __version__)
        self._began_ns = time.time_ns()

    def export(self, families: Iterable[Family], common: Labels) -> None:
        """Send all of them. Raises `ConnectError` if the collector did not accept them."""
        metrics = list(self._metrics(families, common))
        scopes = [ScopeMetrics(self._scope, metrics, "")]
        data = MetricsData([ResourceMetrics(self._resource, scopes, "")])
        if self._exporter.export(data) is not MetricExportResult.SUCCESS:
            raise ConnectError(f"the collector at {self._endpoint} did not accept the metrics")

    def _metrics(self, families: Iterable[Family], common: Labels) -> Iterator[Metric]:
        now_ns, room = time.time_ns(), SERIES_MAX
        for family in families:
            samples = [Sample(*each) for each in family.samples][:room]
            room -= len(samples)
            if not samples:
                continue
            data: Histogram | Sum | Gauge
            if family.kind == "histogram":
                points = list(self._histograms(samples, common, now_ns))
                data = Histogram(points, _CUMULATIVE)
            else:
                numbers = [
                    NumberDataPoint({**common, **labels}, self._began_ns, now_ns, value)
                    for labels, value, _ in samples
                ]
                is_counter = family.kind == "counter"
                data = Sum(numbers, _CUMULATIVE, is_monotonic=True) if is_counter else Gauge(numbers)
            yield Metric(family.name.removesuffix("_total"), family.text, "", data)

    def _histograms(
        self, samples: Iterable[Sample], common: Labels, now_ns: int
    ) -> Iterator[HistogramDataPoint]:
        """Samples come in order, buckets first; each bucket includes the smaller ones."""
        bounds: list[float] = []
        counts: list[float] = [0]
        total = 0.0
        for labels, value, ending in samples:
            if ending == "_bucket":
                counts.append(value)
                if labels["le"] != "+Inf":
                    bounds.append(float(labels["le"]))
            elif ending == "_sum":
                total = value
            else:
                yield HistogramDataPoint(
                    {**common, **labels},
                    self._began_ns,
                    now_ns,
                    int(value),
                    total,
                    [int(upto - below) for below, upto in pairwise(counts)],
                    bounds,
                    # Unset: minimum and maximum are unknown.
                    min=None,  # type: ignore[arg-type]
                    max=None,  # type: ignore[arg-type]
                )
                bounds, counts = [], [0]
