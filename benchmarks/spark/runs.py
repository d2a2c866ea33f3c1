"""Spark runs: reads and writes in turns, the latency of single messages, and idle processor time."""

import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import rmqpy
from benchmarks.processes import cpu_seconds
from benchmarks.spark import cpu
from benchmarks.spark.sides import Ours, Side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: How long an idle query is measured.
IDLE_SECONDS = 20.0
#: Timeout of a single message.
_LATENCY_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Run:
    """One read or write."""

    seconds: float
    #: Processor time of Spark, of the connector in it, and of the broker.
    spark_cpu_s: float
    broker_cpu_s: float
    #: Processes that wanted a core during the run, by the kernel's one-minute average.
    load: float


def read(side: Side, topic: str, messages: int) -> Run:
    """Read every row, and check that none is missing."""

    def look() -> None:
        (row,) = (
            side.read(topic)
            .selectExpr(
                "count(*) AS rows",
                "sum(length(body)) AS bytes",
                "max(queueOffset) AS last",
                "max(queueId) AS queue",
            )
            .collect()
        )
        assert row.rows >= messages, row

    return _timed(side, look)


def write(side: Side, rows: "DataFrame", topic: str, messages: int) -> Run:
    """Send every row; the broker's count afterwards is the result."""
    side.make(topic)
    before = side.stored(topic)
    run = _timed(side, lambda: side.write(rows, topic))
    # Flush pending writes, so that the next run does not pay for them.
    os.sync()
    assert side.stored(topic) - before == messages, topic
    return run


def _timed(side: Side, work: Callable[[], None]) -> Run:
    spark, broker = cpu.spark_seconds(), _broker_seconds(side)
    began = time.perf_counter()
    work()
    took = time.perf_counter() - began
    return Run(took, cpu.spark_seconds() - spark, _broker_seconds(side) - broker, os.getloadavg()[0])


def _broker_seconds(side: Side) -> float:
    return 0.0 if side.pid is None else cpu_seconds(side.pid)


def ratio(over: Sequence[Run], under: Sequence[Run]) -> float:
    """The median ratio of the first's time to the second's over the pairs."""
    return statistics.median(one.seconds / other.seconds for one, other in zip(over, under, strict=True))


@dataclass(frozen=True)
class Latency:
    """Latency of single messages through a query, and the cost of the idle query."""

    median_ms: float
    p90_ms: float
    messages: int
    #: Fractions of one core.
    idle_broker: float
    idle_connector: float
    idle_spark: float


def latency(spark: "SparkSession", ours: Ours, folder: Path, messages: int) -> Latency:
    """Send one message, wait until the query has emitted it, and repeat; then leave the query idle."""
    for topic in ("latency-in", "latency-out"):
        ours.make(topic)
    stream = (
        spark.readStream.format("rocketmq").options(**ours.options).option("subscribe", "latency-in").load()
    )
    query = (
        stream.select("body")
        .writeStream.format("rocketmq")
        .options(**ours.options)
        .option("topic", "latency-out")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        times = _one_by_one(ours.options["nameserver"], messages)
        idle = _idle(ours)
    finally:
        query.stop()
    tenths = statistics.quantiles(times, n=10)
    return Latency(statistics.median(times) * 1000, tenths[8] * 1000, len(times), *idle)


def _one_by_one(namesrv: str, messages: int) -> list[float]:
    chance, times = random.Random(1), []
    with (
        rmqpy.Producer(namesrv) as producer,
        rmqpy.PullConsumer("latency", namesrv, auto_commit=False) as consumer,
    ):
        consumer.assign(consumer.queues("latency-out"))
        consumer.poll(timeout=0.1)
        # The first messages wait for Spark's workers.
        for number in range(-10, messages):
            time.sleep(chance.uniform(0.0, 0.2))
            began = time.perf_counter()
            producer.send("latency-in", str(number))
            came: list[str] = []
            while str(number) not in came:
                assert time.perf_counter() - began < _LATENCY_SECONDS_MAX, number
                came += [message.text() for message in consumer.poll(timeout=1.0)]
            if number >= 0:
                times.append(time.perf_counter() - began)
    return times


def _idle(ours: Ours) -> tuple[float, float, float]:
    """Fractions of a core used by broker, Spark's Python processes (the connector), and its JVM."""
    assert ours.pid is not None
    before = _used(ours.pid)
    time.sleep(IDLE_SECONDS)
    after = _used(ours.pid)
    # Spark ends idle workers and starts others: only present ones count.
    spent = [
        sum(used - earlier.get(pid, 0.0) for pid, used in now.items())
        for now, earlier in zip(after, before, strict=True)
    ]
    broker, connector, jvm = (seconds / IDLE_SECONDS for seconds in spent)
    return broker, connector, jvm


def _used(broker: int) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
    """Processor seconds of each process of the broker, of Python and of the JVM."""
    spark = cpu.spark()
    jvm = {pid for pid, is_jvm in spark.items() if is_jvm}
    return cpu.seconds({broker}), cpu.seconds(spark.keys() - jvm), cpu.seconds(jvm)
