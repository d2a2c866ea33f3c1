"""Instrumentation: the processor time of message trace and OpenTelemetry per message.

`python -m benchmarks.instrumentation`. One process sends and consumes with each kind in turn, so that other load
affects all of them; the broker is a separate process, whose time is not counted. It prints medians, and the
difference to a client without instrumentation. OpenTelemetry uses an SDK whose exporter drops everything.
"""

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import rmqpy
from benchmarks.servers import Rmqpy
from rmqpy.otel import RocketMQInstrumentor

TOPIC = "instrumentation"
BODY = b"x" * 128

#: Name → trace, telemetry.
KINDS = {
    "without": (False, False),
    "trace": (True, False),
    "OpenTelemetry": (False, True),
    "both": (True, True),
}


@contextmanager
def telemetry(is_on: bool) -> Iterator[None]:
    """Spans and metrics of clients created inside, dropped on export."""
    if not is_on:
        yield
        return
    instrumentor = RocketMQInstrumentor()
    meters = MeterProvider(metric_readers=[InMemoryMetricReader()])
    instrumentor.instrument(tracer_provider=TracerProvider(), meter_provider=meters)
    try:
        yield
    finally:
        instrumentor.uninstrument()


def measured(count: int, work: Callable[[], None]) -> float:
    """Microseconds of processor time of this process per message."""
    began = time.process_time()
    work()
    return (time.process_time() - began) / count * 1e6


def sends(namesrv: str, count: int, *, trace: bool) -> float:
    """Single sends, each waited for; includes waiting for pending traces at the end."""
    producer = rmqpy.Producer(namesrv, group="shop", trace=trace)
    producer.send(TOPIC, BODY)

    def work() -> None:
        for _ in range(count):
            producer.send(TOPIC, BODY)
        producer.close()

    return measured(count, work)


def submits(namesrv: str, count: int, *, trace: bool) -> float:
    """Pipelined sends."""
    producer = rmqpy.Producer(namesrv, group="shop", trace=trace)
    producer.send(TOPIC, BODY)

    def work() -> None:
        for future in [producer.submit(TOPIC, BODY) for _ in range(count)]:
            future.result()
        producer.close()

    return measured(count, work)


def handlers(namesrv: str, count: int, *, trace: bool) -> float:
    """Stored messages, consumed by a handler that does nothing."""
    group = f"readers-{time.time_ns()}"
    done, handled = threading.Event(), iter(range(count))

    def handle(message: rmqpy.ReceivedMessage) -> None:
        if next(handled, None) is None:
            done.set()

    consumer = rmqpy.PushConsumer(group, namesrv, start_from="earliest", trace=trace)
    consumer.on(TOPIC, handler=handle)

    def work() -> None:
        with consumer:
            done.wait(120)

    return measured(count, work)


VERBS = {"send": sends, "submit": submits, "handler": handlers}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5_000, help="messages of each run (5000)")
    parser.add_argument("--runs", type=int, default=5, help="of each kind (5)")
    arguments = parser.parse_args()
    taken: dict[tuple[str, str], list[float]] = {(verb, kind): [] for verb in VERBS for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="rmqpy-") as folder:
        side = Rmqpy(Path(folder))
        side.start()
        try:
            for number in range(arguments.runs + 1):
                for kind, (trace, is_on) in KINDS.items():
                    for verb, run in VERBS.items():
                        with telemetry(is_on):
                            microseconds = run(side.namesrv, arguments.count, trace=trace)
                        if number:
                            taken[verb, kind].append(microseconds)
        finally:
            side.stop()
    print(
        f"processor time per message in µs, median of {arguments.runs} runs of {arguments.count} messages of "
        f"{len(BODY)} bytes; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    )
    print(f"{'':16}" + "".join(f"{verb:>20}" for verb in VERBS))
    for kind in KINDS:
        cells = []
        for verb in VERBS:
            now = statistics.median(taken[verb, kind])
            more = now - statistics.median(taken[verb, "without"])
            cells.append(f"{now:.1f}" + (f" (+{more:.1f})" if kind != "without" else ""))
        print(f"{kind:16}" + "".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    main()
