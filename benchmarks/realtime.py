"""Real-time benchmark: latency topic → query → topic under three engines (`python -m benchmarks.realtime`).

A message has the time of its send in its body. Load, query and consumer are processes of one machine and read one
clock. Each cell has a new query, which is warm before messages count.
"""

import multiprocessing
import os
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any, Final

import click

import pyspark_rocketmq
import rmqpy
from benchmarks import java
from benchmarks.processes import exit_on_sigterm
from benchmarks.servers import Rmqpy
from rmqpy.load import machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUES: Final = 4
#: Format of both ends, and whether Spark runs Real-time Mode.
ENGINES: Final[Mapping[str, tuple[str, bool]]] = {
    "python, micro-batches": ("rocketmq", False),
    "jvm, micro-batches": ("rocketmq-jvm", False),
    "jvm, real-time": ("rocketmq-jvm", True),
}
#: Longer than a cell, so that none has an end of a batch in it.
BATCH: Final = "30 minutes"
_BODY: Final = struct.Struct(">qq")
_BODY_BYTES: Final = 100
#: How long messages may be on their way after the last send.
_REST_SECONDS_MAX: Final = 30.0
#: Messages before the load, each of which waits for the one before.
_FIRST_MESSAGES: Final = 10
_FIRST_SECONDS_MAX: Final = 120.0
_STEPS: Final = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")


@dataclass(frozen=True)
class Cell:
    """One engine at one rate. Times are in milliseconds."""

    engine: str
    rate: int
    sent: int
    found: int
    p50: float
    p99: float
    worst: float
    load: float
    #: Mean time of each step of a micro-batch.
    steps: Mapping[str, float]
    batches: int


@click.command()
@click.option("--rates", default="1000,10000", help="Messages a second.")
@click.option("--seconds", default=30, help="Time of each cell that counts.")
@click.option("--warm-up", default=20, help="Time before it.")
@click.option("--engines", help="Some of the engines, by their numbers from 0: 0,2.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="A Markdown file to write.")
def main(rates: str, seconds: int, warm_up: int, engines: str | None, report: Path | None) -> None:
    """Measure each engine at each rate, and print a table."""
    exit_on_sigterm()
    chosen = list(ENGINES) if engines is None else [list(ENGINES)[int(each)] for each in engines.split(",")]
    lines = _head(seconds)
    cells = []
    with _session() as spark:
        for rate in map(int, rates.split(",")):
            for engine in chosen:
                with tempfile.TemporaryDirectory(prefix="rmqpy-bench-") as folder:
                    cells.append(_measure(spark, Path(folder), engine, rate, seconds, warm_up))
                click.echo(f"{cells[-1]}", err=True)
    lines += _table(cells)
    print("\n".join(lines))
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text("\n".join(lines) + "\n", encoding="utf-8")


@contextmanager
def _session() -> "Iterator[SparkSession]":
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.jars", pyspark_rocketmq.jar())
        .config("spark.sql.streaming.realTimeMode.allowlistCheck", "false")
        .config("spark.sql.streaming.numRecentProgressUpdates", "2000")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _measure(spark: "SparkSession", folder: Path, engine: str, rate: int, seconds: int, warm_up: int) -> Cell:
    form, is_real_time = ENGINES[engine]
    servers = Rmqpy(folder)
    try:
        servers.start()
        with rmqpy.Admin(servers.namesrv) as admin:
            for topic in ("in", "out"):
                admin.create_topic(topic, read_queues=QUEUES, write_queues=QUEUES)
        writer = (
            spark.readStream.format(form)
            .options(nameserver=servers.namesrv, subscribe="in")
            .schema("body binary")
            .load()
            .writeStream.format(form)
            .options(nameserver=servers.namesrv, topic="out", idempotencyKey="none")
            .option("checkpointLocation", str(folder / "checkpoint"))
        )
        if is_real_time:
            writer = pyspark_rocketmq.real_time(writer.outputMode("update"), BATCH)
        query = writer.start()
        try:
            _await_first(servers.namesrv)
            sent, latencies = _load(servers.namesrv, rate, seconds, warm_up)
            assert query.isActive, query.exception()
            load = os.getloadavg()[0]
            progress = [each for each in query.recentProgress if each["numInputRows"]]
        finally:
            query.stop()
    finally:
        servers.stop()
    latencies_ms = [each / 1e6 for each in latencies]
    cuts = quantiles(latencies_ms, n=100)
    durations: list[dict[str, Any]] = [each["durationMs"] for each in progress[len(progress) // 2 :]]
    steps = {
        step: sum(each.get(step, 0) for each in durations) / len(durations) for step in _STEPS if durations
    }
    return Cell(
        engine,
        rate,
        sent,
        len(latencies),
        cuts[49],
        cuts[98],
        max(latencies_ms),
        load,
        steps,
        len(progress),
    )


def _await_first(namesrv: str) -> None:
    """Wait until messages pass one by one: Spark has started its workers and compiled the query."""
    with (
        rmqpy.Producer(namesrv) as producer,
        rmqpy.PullConsumer("first", namesrv, auto_commit=False) as consumer,
    ):
        consumer.assign(consumer.queues("out"))
        consumer.poll(timeout=0.1)
        for _ in range(_FIRST_MESSAGES):
            deadline = time.monotonic() + _FIRST_SECONDS_MAX
            # A query that begins at the end of the topic has not found the end yet.
            producer.send("in", _BODY.pack(-1, 0))
            while not consumer.poll(timeout=1.0):
                assert time.monotonic() < deadline, "the query passes no message"
                producer.send("in", _BODY.pack(-1, 0))


def _load(namesrv: str, rate: int, seconds: int, warm_up: int) -> tuple[int, list[int]]:
    """Send at a rate, and receive. Returns the number of messages that count, and the nanoseconds of each."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    consumer = context.Process(target=_consume, args=(namesrv, rate * warm_up, theirs), daemon=True)
    consumer.start()
    ours.recv()
    producer = context.Process(target=_produce, args=(namesrv, rate, warm_up + seconds), daemon=True)
    producer.start()
    producer.join()
    assert producer.exitcode == 0, producer.exitcode
    # The consumer ends when it has them all, or after a time.
    ours.send(rate * seconds)
    latencies: list[int] = ours.recv()
    consumer.join()
    return rate * seconds, latencies


def _produce(namesrv: str, rate: int, seconds: int) -> None:
    with rmqpy.Producer(namesrv, max_in_flight=10_000) as producer:
        began = time.perf_counter_ns()
        for number in range(rate * seconds):
            due = began + number * 1_000_000_000 // rate
            left = due - time.perf_counter_ns()
            if left > 0:
                time.sleep(left / 1e9)
            # From the time when it was due: a late load counts.
            producer.submit("in", _BODY.pack(number, due).ljust(_BODY_BYTES, b"."))
        producer.flush()


def _consume(namesrv: str, first: int, parent: Connection) -> None:
    latencies: list[int] = []
    wanted: int | None = None
    stop_at = float("inf")
    with rmqpy.PullConsumer("realtime", namesrv, auto_commit=False) as consumer:
        consumer.assign(consumer.queues("out"))
        consumer.poll(timeout=0.1)
        parent.send("ready")
        while (wanted is None or len(latencies) < wanted) and time.monotonic() < stop_at:
            for message in consumer.poll(timeout=0.5):
                now = time.perf_counter_ns()
                number, due = _BODY.unpack_from(message.body)
                if number >= first:
                    latencies.append(now - due)
            if wanted is None and parent.poll():
                wanted = parent.recv()
                stop_at = time.monotonic() + _REST_SECONDS_MAX
    parent.send(latencies)


# ---- the report -------------------------------------------------------------------------------------------


def _head(seconds: int) -> list[str]:
    import pyspark

    facts = machine.facts()
    return [
        "# Topic → query → topic",
        "",
        f"`make bench NAME=realtime`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. {facts['processor']}, {facts['cores']} "
        f"cores, {java.version()}, PySpark {pyspark.__version__}, `local[2]`. Messages of {_BODY_BYTES} bytes in "
        f"{QUEUES} queues, {seconds} s for each cell. Load, broker, query and consumer share the cores.",
    ]


def _table(cells: list[Cell]) -> list[str]:
    lines = [
        "",
        "| messages/s | engine | p50 ms | p99 ms | maximum ms | p99, python ÷ this | arrived | load |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    base = {cell.rate: cell.p99 for cell in cells if cell.engine == next(iter(ENGINES))}
    for cell in cells:
        ratio = f"{base[cell.rate] / cell.p99:.1f}" if cell.rate in base else ""
        lines.append(
            f"| {cell.rate:,} | {cell.engine} | {cell.p50:.1f} | {cell.p99:.1f} | {cell.worst:.0f} | {ratio} | "
            f"{cell.found:,} of {cell.sent:,} | {cell.load:.1f} |"
        )
    batched = [cell for cell in cells if cell.steps]
    lines += ["", "Mean time of each step of a micro-batch in ms, by Spark's progress:", ""]
    lines += [
        f"| messages/s | engine | {' | '.join(_STEPS)} | micro-batches |",
        "|---" * (len(_STEPS) + 3) + "|",
    ]
    for cell in batched:
        steps = " | ".join(f"{cell.steps.get(step, 0):.0f}" for step in _STEPS)
        lines.append(f"| {cell.rate:,} | {cell.engine} | {steps} | {cell.batches} |")
    return lines


if __name__ == "__main__":
    main()
