"""Spark command: measures reads, writes and latency of the connector against their bars (`python -m
benchmarks.spark`)."""

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks import java, memory
from benchmarks.processes import exit_on_sigterm
from benchmarks.spark import runs
from benchmarks.spark.generator import Generator
from benchmarks.spark.runs import Latency, Run
from benchmarks.spark.sides import QUEUES, Generated, Kafkas, Ours, Side
from rmqpy.load import machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
#: Minimum speed of ours, as a multiple of another's.
BARS = {("read", "kafka"): 3.0, ("read", "generator"): 0.6, ("write", "kafka"): 2.0}
#: Runs of each side, by kind.
Runs = Mapping[str, Sequence[Run]]


@click.command()
@click.option("--messages", default=2_000_000, help="Messages of each read.")
@click.option("--written", type=int, help="Messages of each write; a quarter of a read by default.")
@click.option("--sizes", default="100,1024", help="Body sizes in bytes.")
@click.option("--pairs", default=5, help="Turns of each side.")
@click.option("--latencies", default=200, help="Single messages to measure; 0 for none.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="Folder of the stores, 10 GB."
)
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="A Markdown file to write.")
def main(
    messages: int,
    written: int | None,
    sizes: str,
    pairs: int,
    latencies: int,
    folder: Path | None,
    report: Path | None,
) -> None:
    """Read and write topics with Spark: ours, Kafka's and generated rows, in turns, in one run."""
    jars = java.jars("spark-kafka")
    java.jars("kafka")
    exit_on_sigterm()
    # As many for every queue.
    messages -= messages % QUEUES
    few = written or messages // 4
    few -= few % QUEUES
    lines = _head(messages, pairs)
    with _session(jars) as spark:
        for size in map(int, sizes.split(",")):
            with (
                tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as place,
                Ours(spark, Path(place)) as ours,
                Kafkas(spark, Path(place)) as kafka,
            ):
                memory.fill(Path(place))
                reads, writes = _measure(spark, ours, kafka, (messages, few), size, pairs)
            lines += [*_table("read", size, messages, reads), *_table("write", size, few, writes)]
        if latencies:
            with (
                tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as place,
                Ours(spark, Path(place)) as ours,
            ):
                lines += _latency(runs.latency(spark, ours, Path(place), latencies))
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text("\n".join(lines) + "\n", encoding="utf-8")


@contextmanager
def _session(jars: Path) -> "Iterator[SparkSession]":
    # Workers are separate processes: this interpreter, this machine, and the generator's module.
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": path}
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.jars", ",".join(map(str, sorted(jars.glob("*.jar")))))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Generator)
    try:
        yield spark
    finally:
        spark.stop()


def _measure(
    spark: "SparkSession", ours: Ours, kafka: Kafkas, counts: tuple[int, int], size: int, pairs: int
) -> tuple[Runs, Runs]:
    """Fill both brokers with the same messages, then read and write in turns; the first turn does not count.
    `counts`: messages of a read, of a write."""
    messages, written = counts
    made, few = Generated(spark, messages, size), Generated(spark, written, size)
    targets: tuple[Ours | Kafkas, ...] = (ours, kafka)
    for target in targets:
        _say(f"{size} bytes: filling {target.name}")
        runs.write(target, made.read("all"), "all", messages)
    reads: dict[str, list[Run]] = {}
    writes: dict[str, list[Run]] = {}
    sides: tuple[Side, ...] = (ours, kafka, made)
    for turn in range(pairs + 1):
        for side in sides:
            reads.setdefault(side.name, []).append(runs.read(side, "all", messages))
        for target in targets:
            run = runs.write(target, few.read("few"), f"copy-{turn}", written)
            writes.setdefault(target.name, []).append(run)
        took = ", ".join(
            f"{name} {side[-1].seconds:.2f}" for each in (reads, writes) for name, side in each.items()
        )
        _say(f"{size} bytes, turn {turn} of {pairs}: {took} s")
    return (
        {name: found[1:] for name, found in reads.items()},
        {name: found[1:] for name, found in writes.items()},
    )


def _say(line: str) -> None:
    click.echo(line, err=True)


# ---- the report -------------------------------------------------------------------------------------------


def _head(messages: int, pairs: int) -> list[str]:
    import pyspark

    facts = machine.facts()
    lines = [
        "# The connector and Spark's Kafka connector",
        "",
        f"`make bench-spark`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. {facts['processor']}, {facts['cores']} cores, "
        f"Python {facts['python']}, {java.version()}, PySpark {pyspark.__version__}, `local[2]`. "
        f"{messages:,} messages in {QUEUES} queues, {pairs} turns; medians.",
    ]
    print("\n".join(lines))
    return lines


def _table(what: str, size: int, messages: int, found: Runs) -> list[str]:
    """One table, and its bars, by the median ratio of the turns."""
    lines = ["", f"## {what.capitalize()}, {size} bytes, {messages:,} rows", ""]
    lines += ["| | M rows/s | Spark's µs per row | broker's µs per row | load |", "|---|---|---|---|---|"]
    for name, turns in found.items():
        speed = messages / statistics.median(run.seconds for run in turns) / 1e6
        spark, broker = (
            statistics.median(cost) / messages * 1e6
            for cost in zip(*((run.spark_cpu_s, run.broker_cpu_s) for run in turns), strict=True)
        )
        load = statistics.median(run.load for run in turns)
        lines.append(f"| {name} | {speed:.2f} | {spark:.2f} | {broker:.2f} | {load:.1f} |")
    lines.append("")
    for other in found:
        if bar := BARS.get((what, other)):
            times = runs.ratio(found[other], found["rocketmq"])
            outcome = "held" if times >= bar else "**missed**"
            lines.append(f"- {times:.2f} times {other}; bar {bar:g}: {outcome}")
    print("\n".join(lines), flush=True)
    return lines


def _latency(found: Latency) -> list[str]:
    lines = [
        "",
        "## One message at a time, topic → query → topic",
        "",
        f"{found.messages} messages: median {found.median_ms:.0f} ms, p90 {found.p90_ms:.0f} ms. While the query waits "
        f"for messages: broker {found.idle_broker:.1%} of a core, connector {found.idle_connector:.1%}, Spark's JVM "
        f"{found.idle_spark:.1%}.",
    ]
    print("\n".join(lines), flush=True)
    return lines


if __name__ == "__main__":
    main()
