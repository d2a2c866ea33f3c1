"""OpenTelemetry: the spans and metrics of clients, in an exporter that keeps everything."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import entry_points

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import rmqpy
from rmqpy import errors, testing
from rmqpy.otel import RocketMQInstrumentor
from rmqpy.otel.names import DURATION_BOUNDS
from rmqpy.server import Standalone

WAIT_S = 30.0

Point = HistogramDataPoint | NumberDataPoint


class Telemetry:
    """Spans that ended and metrics of this process."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider(metric_readers=[self.reader])

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def points(self, name: str) -> list[Point]:
        data = self.reader.get_metrics_data()
        assert data is not None
        metrics = [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        return [point for metric in metrics for point in metric.data.data_points]


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    instrumentor = RocketMQInstrumentor()
    instrumentor.instrument(tracer_provider=telemetry.tracers, meter_provider=telemetry.meters)
    yield telemetry
    instrumentor.uninstrument()


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with testing.broker() as server:
        with rmqpy.Admin(server.namesrv) as admin:
            for topic in ("orders", "invoices", "batched", "polled"):
                admin.create_topic(topic, read_queues=1, write_queues=1)
        yield server


def consumed(group: str, topic: str, server: Standalone) -> tuple[rmqpy.PushConsumer, threading.Event]:
    """A consumer that has not started, and an event for its first handled message."""
    done = threading.Event()
    consumer = rmqpy.PushConsumer(group, server.namesrv, start_from="earliest")
    consumer.on(topic, handler=lambda message: done.set())
    return consumer, done


def test_one_trace_goes_from_a_producer_through_the_broker_and_a_consumer_to_a_second_topic(
    server: Standalone, telemetry: Telemetry
) -> None:
    tracer = telemetry.tracers.get_tracer("the application")
    with rmqpy.Producer(server.namesrv) as producer:
        billing = rmqpy.PushConsumer("billing", server.namesrv, start_from="earliest")

        @billing.on("orders")
        def bill(message: rmqpy.ReceivedMessage) -> None:
            producer.send("invoices", b"to pay")

        archive, archived = consumed("archive", "invoices", server)
        with tracer.start_as_current_span("checkout") as checkout:
            sent = producer.send("orders", b"hello", tag="paid", keys=["A-1"], sharding_key="customer-7")
        with billing, archive:
            assert archived.wait(WAIT_S)
    # A message may be repeated if the machine delays the member: each link is the first of its kind.
    chain: list[ReadableSpan] = []
    parent = checkout.get_span_context().span_id
    for name in ("send orders", "process orders", "send invoices", "process invoices"):
        spans = telemetry.spans(name)
        link = next(span for span in spans if span.parent is not None and span.parent.span_id == parent)
        chain.append(link)
        parent = link.context.span_id
    first, process, _, _ = chain
    assert {span.context.trace_id for span in chain} == {checkout.get_span_context().trace_id}
    kinds = [SpanKind.PRODUCER, SpanKind.CONSUMER] * 2
    assert [span.kind for span in chain] == kinds
    assert [link.context.span_id for link in process.links] == [first.context.span_id]
    assert dict(first.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": f"{sent.queue.broker}:0",
        "messaging.message.id": sent.message_id,
        "messaging.message.body.size": 5,
        "rocketmq.message.keys": ("A-1",),
        "rocketmq.message.tag": "paid",
        "rocketmq.message.type": "fifo",
        "rocketmq.message.group": "customer-7",
    }
    assert dict(process.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": f"{sent.queue.broker}:0",
        "messaging.consumer.group.name": "billing",
        "messaging.message.id": sent.message_id,
        "messaging.message.body.size": 5,
        "rocketmq.consumption_model": "clustering",
        "rocketmq.message.keys": ("A-1",),
        "rocketmq.message.tag": "paid",
        "rocketmq.message.group": "customer-7",
    }


def test_event_loops_keep_the_context_of_each_message_apart(server: Standalone, telemetry: Telemetry) -> None:
    seen: dict[bytes, int] = {}

    async def use() -> None:
        done = asyncio.Event()
        consumer = rmqpy.AsyncPushConsumer("side-by-side", server.namesrv)

        @consumer.on("orders")
        async def handle(message: rmqpy.ReceivedMessage) -> None:
            await asyncio.sleep(0)
            seen[message.body] = trace.get_current_span().get_span_context().trace_id
            if len(seen) == 10:
                done.set()

        async with consumer, rmqpy.AsyncProducer(server.namesrv) as producer:
            for number in range(10):
                await producer.send("orders", f"{number}")
            await asyncio.wait_for(done.wait(), WAIT_S)

    asyncio.run(use())
    sends = telemetry.spans("send orders")
    assert sorted(seen.values()) == sorted(span.context.trace_id for span in sends)
    assert len(set(seen.values())) == 10


def test_batch_span_links_to_its_messages(server: Standalone, telemetry: Telemetry) -> None:
    sizes: list[int] = []
    done = threading.Event()
    consumer = rmqpy.PushConsumer("batches", server.namesrv, start_from="earliest", batch_size=8)

    @consumer.on("batched")
    def handle(messages: list[rmqpy.ReceivedMessage]) -> None:
        sizes.append(len(messages))
        if sum(sizes) == 5:
            done.set()

    with rmqpy.Producer(server.namesrv) as producer:
        producer.send_batch([rmqpy.Message("batched", f"{number}") for number in range(5)])
    with consumer:
        assert done.wait(WAIT_S)
    spans = telemetry.spans("process batched")
    linked = {link.context.span_id for span in spans for link in span.links}
    assert linked == {span.context.span_id for span in telemetry.spans("send batched")}
    counts = [(span.attributes or {}).get("messaging.batch.message_count", 1) for span in spans]
    assert counts == sizes


def test_poll_span_links_to_sends_and_has_the_callers_parent(
    server: Standalone, telemetry: Telemetry
) -> None:
    tracer = telemetry.tracers.get_tracer("the application")
    with (
        rmqpy.Producer(server.namesrv) as producer,
        rmqpy.PullConsumer("polling", server.namesrv) as consumer,
    ):
        consumer.assign(consumer.queues("polled"))
        assert consumer.poll(timeout=0) == []
        sent = [producer.send("polled", f"{number}") for number in range(3)]
        received: list[str] = []
        with tracer.start_as_current_span("nightly run") as run:
            while len(received) < len(sent):
                received += [message.message_id for message in consumer.poll(timeout=1)]
    spans = telemetry.spans("receive polled")
    assert {span.kind for span in spans} == {SpanKind.CLIENT}
    assert {span.parent and span.parent.span_id for span in spans} == {run.get_span_context().span_id}
    linked = [link.context.span_id for span in spans for link in span.links]
    assert linked == [span.context.span_id for span in telemetry.spans("send polled")]
    attributes = [span.attributes or {} for span in spans]
    assert sum(int(str(each["messaging.batch.message_count"])) for each in attributes) == 3
    expected = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "polled",
        "messaging.consumer.group.name": "polling",
    }
    assert all(expected.items() <= each.items() for each in attributes)
    [count] = telemetry.points("messaging.client.consumed.messages")
    assert isinstance(count, NumberDataPoint)
    assert (count.value, dict(count.attributes or {})) == (3, expected)


def test_failure_is_an_error_with_its_type(server: Standalone, telemetry: Telemetry) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        with pytest.raises(errors.MessageTooLarge):
            producer.send("orders", b"x" * (5 << 20))
        producer.send("orders", b"hello")
    done = threading.Event()
    consumer = rmqpy.PushConsumer("failing", server.namesrv, start_from="earliest")

    @consumer.on("orders")
    def handle(message: rmqpy.ReceivedMessage) -> None:
        done.set()
        raise ValueError("not today")

    with consumer:
        assert done.wait(WAIT_S)
    failed, stored = telemetry.spans("send orders")
    assert (failed.status.status_code, stored.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert (failed.attributes or {})["error.type"] == "MessageTooLarge"
    process = telemetry.spans("process orders")[0]
    assert (process.attributes or {})["error.type"] == "ValueError"
    assert [event.name for event in process.events] == ["exception"]


def test_metrics_have_the_conventions_names_labels_and_buckets(
    server: Standalone, telemetry: Telemetry
) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        for _ in range(3):
            producer.send("invoices", b"hello")
    calls: list[rmqpy.ReceivedMessage] = []
    done = threading.Event()
    consumer = rmqpy.PushConsumer("counted", server.namesrv, start_from="earliest")

    @consumer.on("invoices")
    def handle(message: rmqpy.ReceivedMessage) -> None:
        calls.append(message)
        if len(calls) >= 3:
            done.set()

    with consumer:
        assert done.wait(WAIT_S)
    sent = {"messaging.system": "rocketmq", "messaging.destination.name": "invoices"}
    sent |= {"messaging.operation.name": "send", "messaging.operation.type": "send"}
    [count] = telemetry.points("messaging.client.sent.messages")
    assert isinstance(count, NumberDataPoint)
    assert (count.value, dict(count.attributes or {})) == (3, sent)
    [duration] = telemetry.points("messaging.client.operation.duration")
    assert isinstance(duration, HistogramDataPoint)
    assert (duration.count, tuple(duration.explicit_bounds)) == (3, DURATION_BOUNDS)
    [process] = telemetry.points("messaging.process.duration")
    assert (process.attributes or {})["messaging.consumer.group.name"] == "counted"
    [handled] = telemetry.points("messaging.client.consumed.messages")
    assert isinstance(handled, NumberDataPoint)
    assert handled.value == len(calls)


def test_trace_messages_have_no_spans_and_half_messages_are_marked(
    server: Standalone, telemetry: Telemetry
) -> None:
    with rmqpy.Producer(server.namesrv, group="shop", trace=True) as producer:
        producer.send("orders", b"hello")
        with producer.transaction("orders", b"half"):
            pass
    names = {span.name for span in telemetry.exporter.get_finished_spans()}
    assert names == {"send orders"}
    types = [(span.attributes or {})["rocketmq.message.type"] for span in telemetry.spans("send orders")]
    assert types == ["normal", "transaction"]


def test_clients_created_without_telemetry_report_nothing(server: Standalone) -> None:
    telemetry = Telemetry()
    instrumentor = RocketMQInstrumentor()
    instrumentor.instrument(tracer_provider=telemetry.tracers, meter_provider=telemetry.meters)
    instrumentor.uninstrument()
    with rmqpy.Producer(server.namesrv) as producer:
        producer.send("orders", b"hello")
    assert telemetry.exporter.get_finished_spans() == ()


def test_opentelemetry_finds_it_by_its_entry_point() -> None:
    [found] = entry_points(group="opentelemetry_instrumentor", name="rmqpy")
    assert found.load() is RocketMQInstrumentor


def test_nothing_of_opentelemetry_is_imported_by_clients_without_it() -> None:
    code = (
        "import sys, rmqpy\n"
        "rmqpy.Producer, rmqpy.PushConsumer, rmqpy.Admin, rmqpy.PullConsumer\n"
        "from rmqpy.server import Standalone\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
