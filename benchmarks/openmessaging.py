"""OpenMessaging Benchmark: its RocketMQ driver at rmqpy and at Apache's broker in turns
(`python -m benchmarks.openmessaging FOLDER`).

FOLDER is the checkout of that project, with its modules `benchmark-framework` and `driver-rocketmq` built. The driver
is unchanged; its settings are those of its `rocketmq.yaml`, with ordinary queues instead of BatchCQ.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from benchmarks import java
from benchmarks.interval import RunMetrics
from benchmarks.processes import exit_on_sigterm
from benchmarks.report import table
from benchmarks.servers import Apache, Rmqpy, Side
from rmqpy.load import machine
from rmqpy.load.report import duration

OUT: Final = Path(__file__).resolve().parent.parent / "target" / "benchmarks" / "openmessaging.json"
MODULES: Final = ("benchmark-framework", "driver-api", "driver-rocketmq")
MAIN: Final = "io.openmessaging.benchmark.Benchmark"
DRIVER: Final = """\
name: RocketMQ
driverClass: io.openmessaging.benchmark.driver.rocketmq.RocketMQBenchmarkDriver
clusterName: bench
namesrvAddr: {namesrv}
vipChannelEnabled: false
batchCQ: false
autoBatch: {batches}
enableBackpressure: true
backpressureConcurrency: 1024
"""
WORKLOAD: Final = """\
name: {name}
topics: 1
partitionsPerTopic: 16
messageSize: 1024
payloadFile: {payload}
subscriptionsPerTopic: 1
consumerPerSubscription: 1
producersPerTopic: 1
producerRate: {rate}
consumerBacklogSizeGB: 0
warmupDurationMinutes: {minutes}
testDurationMinutes: {minutes}
"""
#: Title → messages a second, where 0 lets the benchmark look for the most that is sustained, and whether its producer
#: forms batches.
WORKLOADS: Final[Mapping[str, tuple[int, bool]]] = {
    "10,000/s": (10_000, False),
    "as many as are consumed": (0, False),
    "as many as are consumed, in batches": (0, True),
}
_RUN_SECONDS_MAX: Final = 1_200
_HEADINGS: Final = ("", "", "sent/s", "consumed/s", "send p50", "send p99", "end to end p50", "p99")


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--minutes", default=1, show_default=True, help="Of warm-up, and of each run.")
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True)
@click.option("--quick", is_flag=True, help="Only the fixed rate, as a smoke test.")
def main(folder: Path, minutes: int, rounds: int, quick: bool) -> None:
    """Run the RocketMQ driver of the OpenMessaging Benchmark in FOLDER."""
    exit_on_sigterm()
    classes = _classes(folder)
    workloads = dict(list(WORKLOADS.items())[: 1 if quick else None])
    runs: dict[str, dict[str, list[RunMetrics]]] = {title: {} for title in workloads}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-") as name:
        place = Path(name)
        sides: Sequence[Side] = (Rmqpy(place), Apache(place, java.jars("apache")))
        for turn in range(rounds):
            for title, (rate, batches) in workloads.items():
                for side in sides:
                    found = _run(side, classes, folder, title, rate, minutes, batches=batches)
                    runs[title].setdefault(side.name, []).append(found)
                    click.echo(f"  {turn + 1}/{rounds} {title}, {side.name}: {' '.join(_cells(found))}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"machine": machine.facts(), "runs": runs}, indent=1) + "\n", encoding="utf-8")
    rows = [
        [title, side, *_cells(_median(of_side))]
        for title, of_title in runs.items()
        for side, of_side in of_title.items()
    ]
    click.echo(table(_HEADINGS, rows))


def _classes(folder: Path) -> str:
    """The class path of the built benchmark."""
    listed = folder / "benchmark-framework" / "target" / "classpath.txt"
    if not listed.exists():
        raise click.UsageError(
            f"{listed} is missing: build the checkout with `mvn package -DskipTests`; of its modules only "
            f"{', '.join(MODULES)} are needed"
        )
    # The list has the jars of the modules as installed artifacts; those that were built come first.
    built = [str(folder / module / "target" / "classes") for module in MODULES]
    return os.pathsep.join([*built, listed.read_text().strip()])


def _run(
    side: Side, classes: str, folder: Path, title: str, rate: int, minutes: int, *, batches: bool
) -> RunMetrics:
    side.more_settings = {"autoCreateTopicEnable": "true"}
    side.start()
    try:
        driver, workload, result = (
            side.folder / name for name in ("driver.yaml", "load.yaml", "result.json")
        )
        driver.write_text(DRIVER.format(namesrv=side.namesrv, batches=str(batches).lower()))
        payload = folder / "payload" / "payload-1Kb.data"
        workload.write_text(WORKLOAD.format(name=title, payload=payload, rate=rate, minutes=minutes))
        command = ["java", "-Xmx2g", "-cp", classes, MAIN]
        command += ["--drivers", str(driver), "--output", str(result), str(workload)]
        with (side.folder / "benchmark.log").open("wb") as log:
            done = subprocess.run(
                command,
                cwd=side.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=_RUN_SECONDS_MAX,
                check=False,
            )
        if done.returncode or not result.exists():
            text = (side.folder / "benchmark.log").read_text(errors="replace")
            raise click.ClickException(f"the benchmark failed at {side.name}:\n{text[-4_000:]}")
        return _read(json.loads(result.read_text()))
    finally:
        side.stop()


def _read(result: Mapping[str, object]) -> RunMetrics:
    """What is compared; the benchmark counts in ms."""

    def number(name: str) -> float:
        value = result[name]
        return statistics.median(value) if isinstance(value, list) else float(str(value))

    return {
        "sent_per_s": number("publishRate"),
        "consumed_per_s": number("consumeRate"),
        "send_p50_us": number("aggregatedPublishLatency50pct") * 1_000,
        "send_p99_us": number("aggregatedPublishLatency99pct") * 1_000,
        "whole_p50_us": number("aggregatedEndToEndLatency50pct") * 1_000,
        "whole_p99_us": number("aggregatedEndToEndLatency99pct") * 1_000,
    }


def _median(runs: Sequence[RunMetrics]) -> RunMetrics:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def _cells(run: RunMetrics) -> list[str]:
    return [
        f"{run['sent_per_s']:,.0f}",
        f"{run['consumed_per_s']:,.0f}",
        *(duration(run[name]) for name in ("send_p50_us", "send_p99_us", "whole_p50_us", "whole_p99_us")),
    ]


if __name__ == "__main__":
    sys.exit(main())
