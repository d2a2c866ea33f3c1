"""Pushed metrics of a broker: to an OpenTelemetry collector, and to its log."""

import gzip
import logging
import re
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

import rmqpy
from rmqpy import errors
from rmqpy.config.broker import read
from rmqpy.testing import broker

WAIT_S = 30.0
_UNPACK = {"gzip": gzip.decompress, "deflate": zlib.decompress}


class Collector:
    """Receives OTLP over HTTP; `status` is its response."""

    def __init__(self) -> None:
        self.taken: Queue[ExportMetricsServiceRequest] = Queue()
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                unpack = _UNPACK.get(self.headers.get("Content-Encoding", ""), bytes)
                assert self.path == "/v1/metrics"
                self.send_response(collector.status)
                self.end_headers()
                collector.taken.put(ExportMetricsServiceRequest.FromString(unpack(body)))

            def log_message(self, *_: Any) -> None:
                """Discard the log line."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


def points(request: ExportMetricsServiceRequest, name: str) -> list[Any]:
    """The points of one metric."""
    found = []
    for resource in request.resource_metrics:
        assert {each.key: each.value.string_value for each in resource.resource.attributes}[
            "service.name"
        ] == "rmqpy-broker"
        for scope in resource.scope_metrics:
            found += [metric for metric in scope.metrics if metric.name == name]
    kinds = [metric.WhichOneof("data") for metric in found]
    return [
        point
        for metric, kind in zip(found, kinds, strict=True)
        for point in getattr(metric, kind).data_points
    ]


def labels(point: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in point.attributes}


def test_collector_receives_the_metrics_of_a_scrape(collector: Collector) -> None:
    with (
        broker(otlpEndpoint=collector.address, otlpIntervalMs=1000) as server,
        rmqpy.Producer(server.namesrv) as producer,
    ):
        for _ in range(3):
            producer.send("orders", b"hello")
        while True:
            request = collector.taken.get(timeout=WAIT_S)
            sent = [
                each for each in points(request, "rocketmq_messages_in") if labels(each)["topic"] == "orders"
            ]
            if sent:
                break
    assert [each.as_double or each.as_int for each in sent] == [3]
    assert labels(sent[0]).items() >= {"node_type": "broker", "node_id": "broker-a"}.items()
    [topics] = points(request, "rocketmq_topic_number")
    assert topics.as_int > 1
    [latency] = [
        each
        for each in points(request, "rocketmq_rpc_latency")
        if labels(each).items() >= {"request_code": "SEND_MESSAGE_V2", "response_code": "SUCCESS"}.items()
    ]
    assert latency.count == sum(latency.bucket_counts) == 3
    assert len(latency.bucket_counts) == len(latency.explicit_bounds) + 1
    assert latency.explicit_bounds[0] == 0.001
    assert not latency.HasField("max")
    assert "le" not in labels(latency)


def test_failing_collector_is_logged_once_and_the_broker_continues(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    with (
        caplog.at_level(logging.INFO, "rmqpy"),
        broker(otlpEndpoint=collector.address, otlpIntervalMs=1000) as server,
    ):
        for _ in range(3):
            collector.taken.get(timeout=WAIT_S)
        with rmqpy.Producer(server.namesrv) as producer:
            assert producer.send("orders", b"hello").ok
    told = [each.getMessage() for each in caplog.records if each.name == "rmqpy.monitor.push"]
    assert told == [
        f"cannot export metrics, retrying: the collector at {collector.address} did not accept the metrics"
    ]


def test_metrics_are_logged_if_configured(caplog: pytest.LogCaptureFixture) -> None:
    written = threading.Event()

    class Waiting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "rocketmq_topic_number" in record.getMessage():
                written.set()

    log = logging.getLogger("rmqpy.monitor.push")
    waiting = Waiting()
    with caplog.at_level(logging.INFO, "rmqpy"):
        log.addHandler(waiting)
        try:
            with broker(metricsLogIntervalMs=1000):
                assert written.wait(WAIT_S)
        finally:
            log.removeHandler(waiting)
    lines = [each.getMessage() for each in caplog.records if each.name == log.name]
    line = next(each for each in lines if each.startswith("rocketmq_topic_number"))
    assert re.fullmatch(
        r'rocketmq_topic_number\{cluster="DefaultCluster",node_type="broker",node_id="broker-a"\} \d+', line
    )
    assert not any("_bucket" in each for each in lines)


@pytest.mark.parametrize(
    ("key", "value"),
    [("otlpEndpoint", "127.0.0.1:4318"), ("otlpEndpoint", "http://"), ("metricsLogIntervalMs", "10")],
)
def test_an_address_of_no_collector_and_an_interval_too_short_are_refused(key: str, value: str) -> None:
    with pytest.raises(errors.ConfigError, match=key):
        read({key: value})
